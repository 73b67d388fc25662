// Prints, as JSON, what robfig/cron says to each schedule of a file of cases, [[schedule, zone, second], ...]: its refusal,
// or the next five seconds after that one at which it is due.
//
// `scripts/record_schedules.py` builds and runs it with the modules of the release that `scripts/real_cluster` builds.
package main

import (
	"encoding/json"
	"os"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
	_ "k8s.io/kubernetes/pkg/apis/batch" // so that the library has the version that Kubernetes asks for
)

func main() {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var cases [][3]any
	check(json.Unmarshal(text, &cases))
	found := []any{}
	for _, each := range cases {
		zone, err := time.LoadLocation(each[1].(string))
		check(err)
		found = append(found, answer(each[0].(string), time.Unix(int64(each[2].(float64)), 0).In(zone)))
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

func answer(text string, t time.Time) any {
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return err.Error()
	}
	due := []int64{}
	for range 5 {
		if t = schedule.Next(t); t.IsZero() {
			break
		}
		due = append(due, t.Unix())
	}
	return due
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
