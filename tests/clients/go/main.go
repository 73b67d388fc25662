// A client-go program as controllers are written: informers that stream their lists, typed and dynamic writes,
// status updates with retries, and leader election on a Lease. It prints one line per thing that worked.
//
//	client KUBECONFIG NAMESPACE
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

var jobs = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}

type scene struct {
	ctx       context.Context
	namespace string
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must(err)
	custom := rest.CopyConfig(config)
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf, */*" // as real controllers ask
	config.ContentType = "application/json"
	s := scene{ctx, os.Args[2], kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(custom)}
	s.discovers()
	s.informs()
	s.writes()
	s.follows()
	s.leads()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func worked(what string) { fmt.Println(what) }

func (s scene) eventually(what string, so func() bool) {
	err := wait.PollUntilContextTimeout(s.ctx, 10*time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		must(fmt.Errorf("%s: %w", what, err))
	}
	worked(what)
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"colour": "red"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.test/none:1"}}},
	}
}

func (s scene) discovers() {
	groups, resources, err := s.typed.Discovery().ServerGroupsAndResources()
	must(err)
	found := map[string]bool{}
	for _, list := range resources {
		for _, resource := range list.APIResources {
			found[list.GroupVersion+"/"+resource.Name] = true
		}
	}
	if !found["v1/pods"] || !found["kubeflow.org/v1/pytorchjobs"] || len(groups) < 4 {
		must(fmt.Errorf("discovery misses kinds: %d groups, %d resources", len(groups), len(found)))
	}
	worked("discovery")
}

// Typed informers: the list comes as a stream of events and a bookmark when WatchListClient is on.
func (s scene) informs() {
	_, err := s.typed.CoreV1().Pods(s.namespace).Create(s.ctx, pod("before"), metav1.CreateOptions{})
	must(err)
	factory := informers.NewSharedInformerFactoryWithOptions(s.typed, 0, informers.WithNamespace(s.namespace))
	var added, updated, deleted atomic.Int32
	informer := factory.Core().V1().Pods().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(any, any) { updated.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	})
	must(err)
	lister := factory.Core().V1().Pods().Lister().Pods(s.namespace)
	factory.Start(s.ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(s.ctx.Done()) {
		if !synced {
			must(fmt.Errorf("the informer of %v did not sync", kind))
		}
	}
	s.eventually("informer lists", func() bool { return added.Load() == 1 })
	_, err = s.typed.CoreV1().Pods(s.namespace).Create(s.ctx, pod("after"), metav1.CreateOptions{})
	must(err)
	s.eventually("informer sees a creation", func() bool { _, err := lister.Get("after"); return err == nil && added.Load() == 2 })
	body := []byte(`{"metadata":{"labels":{"colour":"blue"}}}`)
	_, err = s.typed.CoreV1().Pods(s.namespace).Patch(s.ctx, "after", types.StrategicMergePatchType, body, metav1.PatchOptions{})
	must(err)
	s.eventually("informer sees a patch", func() bool {
		seen, err := lister.Get("after")
		return err == nil && seen.Labels["colour"] == "blue" && updated.Load() >= 1
	})
	must(s.typed.CoreV1().Pods(s.namespace).Delete(s.ctx, "after", metav1.DeleteOptions{}))
	s.eventually("informer sees a deletion", func() bool { return deleted.Load() == 1 })
}

func (s scene) writes() {
	pods := s.typed.CoreV1().Pods(s.namespace)
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := pods.Get(s.ctx, "before", metav1.GetOptions{})
		must(err)
		found.Status.Phase = corev1.PodRunning
		_, err = pods.UpdateStatus(s.ctx, found, metav1.UpdateOptions{})
		return err
	}))
	found, err := pods.Get(s.ctx, "before", metav1.GetOptions{})
	must(err)
	if found.Status.Phase != corev1.PodRunning {
		must(fmt.Errorf("the status was not written"))
	}
	worked("status update")
	found.ResourceVersion = "1"
	if _, err = pods.Update(s.ctx, found, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		must(fmt.Errorf("an old update was answered with %v", err))
	}
	if _, err = pods.Create(s.ctx, pod("before"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(fmt.Errorf("a taken name was answered with %v", err))
	}
	if _, err = pods.Get(s.ctx, "nobody", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		must(fmt.Errorf("a missing pod was answered with %v", err))
	}
	worked("errors")
	wish := applycorev1.ConfigMap("applied", s.namespace).WithData(map[string]string{"x": "1"})
	applied, err := s.typed.CoreV1().ConfigMaps(s.namespace).Apply(s.ctx, wish, metav1.ApplyOptions{FieldManager: "go"})
	must(err)
	if applied.ManagedFields[0].Manager != "go" {
		must(fmt.Errorf("apply recorded %v", applied.ManagedFields))
	}
	worked("apply")
	must(s.typed.CoreV1().ConfigMaps(s.namespace).DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	worked("delete collection")
	page, err := pods.List(s.ctx, metav1.ListOptions{Limit: 1})
	must(err)
	if len(page.Items) != 1 || page.Kind != "" && page.Kind != "PodList" {
		must(fmt.Errorf("a page holds %d pods", len(page.Items)))
	}
	worked("pages")
}

// Custom resources by the dynamic client and its informers.
func (s scene) follows() {
	var seen atomic.Int32
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.dynamic, 0, s.namespace, nil)
	_, err := factory.ForResource(jobs).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { seen.Add(1) },
	})
	must(err)
	factory.Start(s.ctx.Done())
	factory.WaitForCacheSync(s.ctx.Done())
	containers := []any{map[string]any{"name": "pytorch", "image": "example.test/none:1"}}
	template := map[string]any{"spec": map[string]any{"containers": containers}}
	worker := map[string]any{"replicas": int64(1), "template": template}
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": map[string]any{"name": "j"},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": worker}},
	}}
	_, err = s.dynamic.Resource(jobs).Namespace(s.namespace).Create(s.ctx, job, metav1.CreateOptions{})
	must(err)
	s.eventually("informer of jobs", func() bool { return seen.Load() == 1 })
	s.eventually("operator makes a pod", func() bool {
		_, err := s.typed.CoreV1().Pods(s.namespace).Get(s.ctx, "j-worker-0", metav1.GetOptions{})
		return err == nil
	})
}

func (s scene) leads() {
	var leaders atomic.Int32
	run := func(name string) context.CancelFunc {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: s.namespace},
			Client:     s.typed.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		ctx, cancel := context.WithCancel(s.ctx)
		go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true, Name: name,
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leaders.Add(1) },
				OnStoppedLeading: func() {},
			},
		})
		return cancel
	}
	stop := run("one")
	s.eventually("one leads", func() bool { return leaders.Load() == 1 })
	defer run("two")()
	stop()
	s.eventually("two takes over", func() bool { return leaders.Load() == 2 })
}
