// Prints, as JSON, what Kubernetes' Go types say and its OpenAPI does not, for each kind named on the command line
// ("v1/Pod", "rbac.authorization.k8s.io/v1/Role") and every type below it:
//
//	kinds     kind → the name of its type
//	schemas   type → its OpenAPI v3 schema, as kube-apiserver publishes it
//	structs   type → its fields in order: JSON name, Go type, protobuf number, how zero values are written
//	defaults  type → what the scheme's defaulting functions fill into an empty one
//	depends   those that are others, or none, where other fields are set or the type stands in another place
//
// `scripts/make_types.py` builds and runs it with the modules of the release that `scripts/real_cluster` builds.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	utilopenapi "k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

type field struct {
	JSON    string `json:"json"`
	Go      string `json:"go"`
	Number  string `json:"number,omitempty"`  // protobuf's
	Inline  string `json:"inline,omitempty"`  // the type whose fields stand here in JSON
	Pointer bool   `json:"pointer,omitempty"` // nil is not zero: a zero is written
	Always  bool   `json:"always,omitempty"`  // written even when it is zero: no omitempty, or a struct by value
}

type facts struct {
	Kinds    map[string]string         `json:"kinds"`
	Schemas  map[string]any            `json:"schemas"`
	Structs  map[string][]field        `json:"structs"`
	Defaults map[string]map[string]any `json:"defaults"`
	Depends  map[string]bool           `json:"depends"`
}

var (
	config = openAPIConfig()
	found  = facts{map[string]string{}, map[string]any{}, map[string][]field{}, map[string]map[string]any{}, map[string]bool{}}
)

func openAPIConfig() *common.OpenAPIV3Config {
	definitions := utilopenapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(openapi.GetOpenAPIDefinitions)
	called := apiopenapi.NewDefinitionNamer(legacyscheme.Scheme).GetDefinitionName
	return &common.OpenAPIV3Config{GetDefinitions: definitions, GetDefinitionName: called}
}

func main() {
	for _, kind := range os.Args[1:] {
		object, err := legacyscheme.Scheme.New(gvk(kind))
		check(err)
		canonical := util.GetCanonicalTypeName(object)
		schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, canonical)
		check(err)
		for name, schema := range schemas {
			found.Schemas[name] = schema
		}
		root := reflect.TypeOf(object).Elem()
		found.Kinds[kind] = name(root)
		describe(root)
		fill(root, root, nil, nil)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	check(out.Encode(found))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func gvk(kind string) schema.GroupVersionKind {
	parts := strings.Split(kind, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	return schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]}
}

// name is what OpenAPI calls a type.
func name(t reflect.Type) string {
	called, _ := config.GetDefinitionName(util.GetCanonicalTypeName(reflect.New(t).Interface()))
	return called
}

// structured says whether a type's JSON is that of its fields, and not of its own making (Time, Quantity).
func structured(t reflect.Type) bool {
	_, own := reflect.New(t).Interface().(json.Marshaler)
	return t.Kind() == reflect.Struct && !own
}

// held is the type that a pointer points to, or that a list or map holds.
func held(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// describe writes down the fields of a type and of all types below it.
func describe(t reflect.Type) {
	called := name(t)
	if _, known := found.Structs[called]; known {
		return
	}
	found.Structs[called] = nil
	for i := range t.NumField() {
		f := t.Field(i)
		found.Structs[called] = append(found.Structs[called], describeField(f))
		if below := held(f.Type); structured(below) {
			describe(below)
		}
	}
}

func describeField(f reflect.StructField) field {
	tag := strings.Split(f.Tag.Get("json"), ",")
	options := " " + strings.Join(tag[1:], " ") + " "
	pointer := f.Type.Kind() == reflect.Pointer
	told := field{JSON: tag[0], Go: strings.TrimPrefix(f.Type.String(), "*"), Pointer: pointer}
	if numbered := strings.Split(f.Tag.Get("protobuf"), ","); len(numbered) > 1 {
		told.Number = numbered[1]
	}
	if tag[0] == "" {
		told.Inline = name(held(f.Type))
		return told
	}
	kept := !strings.Contains(options, " omitempty ") || f.Type.Kind() == reflect.Struct
	told.Always = kept && !pointer && !strings.Contains(options, " omitzero ")
	return told
}

// fill finds the defaults of the type that lies on a path of fields below a root: of an object that is empty but for
// that path, what the scheme's defaulting makes of the end of it.
func fill(root, t reflect.Type, path []int, above []reflect.Type) {
	for _, outer := range above {
		if outer == t {
			return
		}
	}
	before, after := defaulted(root, path, "")
	values := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		key := strings.Split(f.Tag.Get("json"), ",")[0]
		if f.Type.Kind() != reflect.Struct && !reflect.DeepEqual(before[key], after[key]) {
			values[key] = after[key]
			if _, full := defaulted(root, path, f.Name); !reflect.DeepEqual(full[key], after[key]) {
				found.Depends[name(t)+"."+key] = true
			}
		}
		if below := held(f.Type); structured(below) {
			fill(root, below, append(path[:len(path):len(path)], i), append(above[:len(above):len(above)], t))
		}
	}
	record(name(t), values)
}

// defaulted is the struct at the end of a path before and after the scheme's defaulting: an empty one, or one in which
// everything is set but the field `without`.
func defaulted(root reflect.Type, path []int, without string) (before, after map[string]any) {
	object := reflect.New(root)
	end := descend(object.Elem(), path)
	for i := 0; without != "" && i < end.NumField(); i++ {
		if end.Type().Field(i).Name != without {
			set(end.Field(i))
		}
	}
	before = fieldsOf(end)
	legacyscheme.Scheme.Default(object.Interface().(runtime.Object))
	return before, fieldsOf(descend(object.Elem(), path))
}

func set(at reflect.Value) {
	switch at.Kind() {
	case reflect.String:
		at.SetString("x")
	case reflect.Bool:
		at.SetBool(true)
	case reflect.Int32, reflect.Int64:
		at.SetInt(1)
	case reflect.Pointer:
		at.Set(reflect.New(at.Type().Elem()))
	}
}

func record(called string, values map[string]any) {
	known, elsewhere := found.Defaults[called]
	if !elsewhere {
		found.Defaults[called] = values
	}
	for _, pair := range [][2]map[string]any{{known, values}, {values, known}} {
		for key, value := range pair[0] {
			if elsewhere && !reflect.DeepEqual(value, pair[1][key]) {
				found.Depends[called+"."+key] = true
			}
		}
	}
}

// descend goes along the fields of a path, and makes what is not there: one element of each list.
func descend(at reflect.Value, path []int) reflect.Value {
	for _, i := range path {
		at = at.Field(i)
		for at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice {
			if at.Kind() == reflect.Slice {
				if at.Len() == 0 {
					at.Set(reflect.MakeSlice(at.Type(), 1, 1))
				}
				at = at.Index(0)
			} else {
				if at.IsNil() {
					at.Set(reflect.New(at.Type().Elem()))
				}
				at = at.Elem()
			}
		}
	}
	return at
}

func fieldsOf(value reflect.Value) map[string]any {
	text, err := json.Marshal(value.Interface())
	check(err)
	var read map[string]any
	check(json.Unmarshal(text, &read))
	return read
}
