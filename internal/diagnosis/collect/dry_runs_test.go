// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

func TestDryRunsSkipAggregatedServers(t *testing.T) {
	const group = "things.example.com"
	aggregated := func(facts *diagnosis.Facts) {
		facts.APIServices = append(facts.APIServices, diagnosis.APIService{
			Name: "v1." + group, GroupVersion: schema.GroupVersion{Group: group, Version: "v1"},
		})
	}
	unread := func(facts *diagnosis.Facts) {
		facts.Unread = append(facts.Unread, diagnosis.Unread{Source: diagnosis.SourceAPIServices})
	}
	for name, test := range map[string]struct {
		group  string
		change func(*diagnosis.Facts)
		want   int
	}{
		"kube-apiserver serves the group":                        {group, func(*diagnosis.Facts) {}, 1},
		"an aggregated server serves the group":                  {group, aggregated, 0},
		"an aggregated server serves another group":              {"widgets.example.com", aggregated, 1},
		"APIServices could not be read":                          {group, unread, 0},
		"APIServices could not be read, the group has no domain": {"apps", unread, 1},
		"APIServices could not be read, core group":              {"", unread, 1},
	} {
		t.Run(name, func(t *testing.T) {
			facts := makeFacts(contentOf(makeType(test.group, "things"), makeObject("kept"),
				makeTerminatingObject("held", "example.com/hold")))
			test.change(facts)
			if got := len(chooseDeletions(facts)); got != test.want {
				t.Errorf("got %d deletions, want %d", got, test.want)
			}
			if got := len(chooseRemovals(facts)); got != test.want {
				t.Errorf("got %d finalizer removals, want %d", got, test.want)
			}
		})
	}
}

// The API server returns the same codes if the object was deleted or changed in the meantime.
func TestDryRunsKeepDenials(t *testing.T) {
	for _, code := range []int32{404, 405, 409} {
		for message, want := range map[string]int{`admission webhook "w" denied the request: in use`: 1, "in use": 0} {
			t.Run(fmt.Sprintf("%d %s", code, message), func(t *testing.T) {
				c := &collection{facts: makeFacts()}
				c.addDryRun(diagnosis.DryRun{Verb: diagnosis.VerbDelete, Err: &apierrors.StatusError{
					ErrStatus: metav1.Status{Code: code, Message: message},
				}})
				NewWithT(t).Expect(c.facts.DryRuns).To(HaveLen(want))
			})
		}
	}
}
