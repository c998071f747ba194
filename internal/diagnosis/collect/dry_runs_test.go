// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
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
		"kube-apiserver serves the group":                      {group, func(*diagnosis.Facts) {}, 1},
		"an aggregated server serves the group":                {group, aggregated, 0},
		"an aggregated server serves another group":            {"widgets.example.com", aggregated, 1},
		"APIServices could not be read":                        {group, unread, 0},
		"APIServices could not be read, the group is built in": {"apps", unread, 1},
		"APIServices could not be read, core group":            {"", unread, 1},
	} {
		t.Run(name, func(t *testing.T) {
			facts := makeFacts(contentOf(makeType(test.group, "things"), makeObject("kept"),
				makeTerminatingObject("held", "example.com/hold")))
			test.change(facts)
			option := dryRunOption(t.Context(), facts)
			if got := len(chooseDeletions(facts, option)); got != test.want {
				t.Errorf("got %d deletions, want %d", got, test.want)
			}
			if got := len(chooseRemovals(facts, option)); got != test.want {
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

func TestChooseDeletionsOfPods(t *testing.T) {
	pods := makeType("", "pods")
	young := makeObject("young")
	young.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Second)}
	for name, test := range map[string]struct {
		content resourcetypes.Content
		want    int
	}{
		"should have been deleted": {contentOf(pods, makeTerminatingObject("a")), 1},
		"within its grace period":  {contentOf(pods, young), 0},
		"with a finalizer":         {contentOf(pods, makeTerminatingObject("a", "example.com/hold")), 0},
		"another type":             {contentOf(configMaps, makeTerminatingObject("a")), 0},
	} {
		t.Run(name, func(t *testing.T) {
			facts := makeFacts(test.content)
			NewWithT(t).Expect(chooseDeletions(facts, dryRunOption(t.Context(), facts))).To(HaveLen(test.want))
		})
	}
}

func TestChooseNamespaceWrites(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*diagnosis.Facts)
		want   []string
	}{
		"empty": {func(*diagnosis.Facts) {}, []string{"namespaces/status ", "namespaces/finalize kubernetes"}},
		"before the progress deadline": {func(facts *diagnosis.Facts) {
			facts.Namespace.DeletionTimestamp.Time = now
		}, nil},
		"not empty": {func(facts *diagnosis.Facts) {
			facts.Content = []resourcetypes.Content{contentOf(configMaps, makeObject("a"))}
		}, []string{"namespaces/status "}},
		"discovery has failed": {func(facts *diagnosis.Facts) { facts.ResourceTypes = nil }, []string{"namespaces/status "}},
		"other finalizers": {func(facts *diagnosis.Facts) {
			facts.Namespace.Spec.Finalizers = []corev1.FinalizerName{"example.com/a", "example.com/a"}
			facts.Namespace.Finalizers = []string{"example.com/b"}
		}, []string{"namespaces/finalize example.com/a", "namespaces example.com/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := makeFacts()
			facts.ResourceTypes = &resourcetypes.Set{}
			test.change(facts)
			var got []string
			for _, write := range chooseNamespaceWrites(facts) {
				got = append(got, write.Resource()+" "+write.Finalizer)
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}
