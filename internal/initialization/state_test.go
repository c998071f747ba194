// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// The initializers of these tests.
const (
	rbac  = "rbac.corp.com"
	quota = "quota.corp.com"
	mesh  = "mesh.corp.com"
)

const systemNamespace = "nslifecycle-system"

// failureResult is a result as an initializer would write it.
const failureResult = `{"kind":"Status","apiVersion":"v1","metadata":{},` +
	`"status":"Failure","message":"no quota left","reason":"Forbidden","code":403}`

func TestObserve(t *testing.T) {
	failure := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: "no quota left", Reason: metav1.StatusReasonForbidden, Code: 403,
	}

	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      State
	}{
		"nothing is said": {
			namespace: wrappers.MakeNamespace("x"),
			want:      State{Stage: StageNotRequired},
		},
		"labels and annotations of others": {
			namespace: wrappers.MakeNamespace("x").Label("app", "true").Annotation("corp.com/initializers", rbac),
			want:      State{Stage: StageNotRequired},
		},
		"all are pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh),
			want: State{
				Stage: StagePending, All: []string{rbac, quota, mesh}, Pending: []string{rbac, quota, mesh},
			},
		},
		"some are pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh).Pending(quota, mesh),
			want:      State{Stage: StagePending, All: []string{rbac, quota, mesh}, Pending: []string{quota, mesh}},
		},
		"all are done": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			want:      State{Stage: StageCompleted, All: []string{rbac, quota}},
		},
		"done, which only the condition remembers": {
			namespace: wrappers.MakeNamespace("x").Condition(initializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted)),
			want:      State{Stage: StageCompleted},
		},
		"done since the condition was written": {
			namespace: wrappers.MakeNamespace("x").Condition(initializing(corev1.ConditionTrue, v1alpha1.ReasonPending)),
			want:      State{Stage: StageCompleted},
		},
		"never had to be initialized, says the condition": {
			namespace: wrappers.MakeNamespace("x").Condition(initializing(corev1.ConditionFalse, v1alpha1.ReasonNotRequired)),
			want:      State{Stage: StageNotRequired},
		},
		"the list was edited by hand": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).
				Annotation(v1alpha1.AnnotationPendingInitializers, " ,"+rbac+", "+quota+"\t,\n,"+rbac),
			want: State{Stage: StagePending, All: []string{rbac, quota}, Pending: []string{rbac, quota}},
		},
		"the list names somebody who was not there at the beginning": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(mesh, rbac),
			want:      State{Stage: StagePending, All: []string{rbac, mesh}, Pending: []string{mesh, rbac}},
		},
		"nobody recorded how it was created": {
			namespace: wrappers.MakeNamespace("x").Pending(rbac, quota),
			want:      State{Stage: StagePending, All: []string{rbac, quota}, Pending: []string{rbac, quota}},
		},

		// The label.
		"the label is missing": {
			namespace: unlabelled(wrappers.MakeNamespace("x").Initializers(rbac)),
			want: State{
				Stage: StagePending, All: []string{rbac}, Pending: []string{rbac}, Repair: ptr.To("true"),
			},
		},
		"the label has another value": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Label(v1alpha1.LabelInitializing, "yes"),
			want: State{
				Stage: StagePending, All: []string{rbac}, Pending: []string{rbac}, Repair: ptr.To("true"),
			},
		},
		"the label is there without a list": {
			namespace: wrappers.MakeNamespace("x").Label(v1alpha1.LabelInitializing, "true"),
			want:      State{Stage: StageNotRequired, Repair: ptr.To("")},
		},
		"the label is there without a value and without a list": {
			namespace: wrappers.MakeNamespace("x").Label(v1alpha1.LabelInitializing, ""),
			want:      State{Stage: StageNotRequired, Repair: ptr.To("")},
		},
		"the label has outlived the list": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending().Label(v1alpha1.LabelInitializing, "true"),
			want:      State{Stage: StageCompleted, All: []string{rbac}, Repair: ptr.To("")},
		},
		"the list is of nothing but blanks": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).
				Annotation(v1alpha1.AnnotationPendingInitializers, " , ,"),
			want: State{Stage: StageCompleted, All: []string{rbac}, Repair: ptr.To("")},
		},

		// The result.
		"failed": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota).Result(failureResult),
			want: State{
				Stage: StageFailed, All: []string{rbac, quota}, Pending: []string{quota}, Failure: failure,
			},
		},
		"failed, in the fewest words": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`),
			want: State{
				Stage: StageFailed, All: []string{rbac}, Pending: []string{rbac},
				Failure: &metav1.Status{Status: metav1.StatusFailure},
			},
		},
		"failed, and the label is missing": {
			namespace: unlabelled(wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`)),
			want: State{
				Stage: StageFailed, All: []string{rbac}, Pending: []string{rbac},
				Failure: &metav1.Status{Status: metav1.StatusFailure}, Repair: ptr.To("true"),
			},
		},
		"a result means nothing when nobody is pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending().Result(failureResult),
			want:      State{Stage: StageCompleted, All: []string{rbac}},
		},
		"a result means nothing where nothing was ever asked": {
			namespace: wrappers.MakeNamespace("x").Result(failureResult),
			want:      State{Stage: StageNotRequired},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			g.Expect(Observe(namespace)).To(Equal(test.want))
			g.Expect(namespace).To(Equal(test.namespace.Obj()), "the namespace that was observed")
		})
	}
}

func TestObserveWithoutAnyMap(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Observe(&corev1.Namespace{})).To(Equal(State{Stage: StageNotRequired}))
}

func TestObserveIgnoresAResultThatIsNoFailure(t *testing.T) {
	const (
		noJSON = "annotation nslifecycle.dev/initialization-result is ignored because it is not the JSON of a metav1.Status: "
		no     = "annotation nslifecycle.dev/initialization-result is ignored because its status is "
		remedy = ` and not "Failure"; to report success, remove the initializer's name from ` +
			"nslifecycle.dev/pending-initializers instead"
	)
	tests := map[string]struct {
		result string
		// want is how the problem begins.
		want string
	}{
		"not JSON":                    {result: "Failure", want: noJSON},
		"cut short":                   {result: `{"status":"Failure"`, want: noJSON + "unexpected end of JSON input"},
		"another shape":               {result: `["Failure"]`, want: noJSON},
		"another type":                {result: `{"status":{}}`, want: noJSON},
		"null":                        {result: "null", want: no + `""` + remedy},
		"no status":                   {result: `{"message":"Failure"}`, want: no + `""` + remedy},
		"success":                     {result: `{"status":"Success"}`, want: no + `"Success"` + remedy},
		"another word":                {result: `{"status":"Failed"}`, want: no + `"Failed"` + remedy},
		"the word in another case":    {result: `{"status":"failure"}`, want: no + `"failure"` + remedy},
		"the field in another case":   {result: `{"Status":"Failure"}`, want: no + `""` + remedy},
		"the field in another object": {result: `{"details":{"status":"Failure"}}`, want: no + `""` + remedy},
		"escaped": {
			result: `{"\u0073tatus":"Failure"}`,
			want:   `annotation nslifecycle.dev/initialization-result is ignored because it does not contain "status":"Failure" as plain text`,
		},
		"after text with one brace": {
			result: `{"message":"{","status":"Failure"}`,
			want:   `annotation nslifecycle.dev/initialization-result is ignored because it does not contain "status":"Failure" as plain text`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := Observe(wrappers.MakeNamespace("x").Initializers(rbac).Result(test.result).Obj())
			g.Expect(state.ResultProblem).To(HavePrefix(test.want))
			state.ResultProblem = ""
			g.Expect(state).To(Equal(State{Stage: StagePending, All: []string{rbac}, Pending: []string{rbac}}))
		})
	}
}

// The admission policies treat each of these as a failure, so the operator must, too.
func TestObserveAFailureThatIsNotAStatus(t *testing.T) {
	const problem = "annotation nslifecycle.dev/initialization-result is not the JSON of a metav1.Status: "
	tests := map[string]struct{ result, wantProblem string }{
		"a code that is not a number": {result: `{"status":"Failure","code":"NaN"}`, wantProblem: problem},
		"a trailing comma":            {result: `{"status":"Failure",}`, wantProblem: problem},
		"more after it":               {result: `{"status":"Failure"} {}`, wantProblem: problem},
		"twice":                       {result: `{"status":"Failure","status":"Failure"}`},
		"twice, the second time another": {
			result: `{"status":"Failure","status":"Success"}`,
		},
		"twice, the first time another": {result: `{"status":"Success","status":"Failure"}`},
		"after an object":               {result: `{"metadata":{},"status":"Failure"}`},
		"an empty result is none":       {result: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := Observe(wrappers.MakeNamespace("x").Initializers(rbac).Result(test.result).Obj())
			if test.result == "" {
				g.Expect(state).To(Equal(State{Stage: StagePending, All: []string{rbac}, Pending: []string{rbac}}))
				return
			}
			g.Expect(state.Stage).To(Equal(StageFailed))
			g.Expect(state.Failure).NotTo(BeNil())
			g.Expect(state.ResultProblem).To(HavePrefix(test.wantProblem))
			if test.wantProblem == "" {
				g.Expect(state.ResultProblem).To(BeEmpty())
			}
		})
	}
}

func TestSplitNames(t *testing.T) {
	tests := map[string]struct {
		list string
		want []string
	}{
		"empty":                   {list: ""},
		"blanks":                  {list: " \t\n"},
		"commas":                  {list: ",,"},
		"commas and blanks":       {list: " , ,"},
		"one":                     {list: rbac, want: []string{rbac}},
		"several, in their order": {list: rbac + "," + mesh + "," + quota, want: []string{rbac, mesh, quota}},
		"blanks around names":     {list: " " + rbac + " ,\n" + mesh + "\t", want: []string{rbac, mesh}},
		"a comma at either end":   {list: "," + rbac + ",", want: []string{rbac}},
		"repeats":                 {list: rbac + "," + mesh + ", " + rbac, want: []string{rbac, mesh}},
		"a blank inside a name":   {list: "rbac corp", want: []string{"rbac corp"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(SplitNames(test.list)).To(Equal(test.want))
		})
	}
}

func TestWhyNotDelete(t *testing.T) {
	failed := func(name string) *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace(name).Initializers(rbac, quota).Pending(quota).Result(failureResult)
	}
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      string
	}{
		"failed": {namespace: failed("x")},
		"pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			want:      "its initialization has not failed",
		},
		"completed": {
			namespace: failed("x").Pending(),
			want:      "its initialization has not failed",
		},
		"not required": {
			namespace: wrappers.MakeNamespace("x").Result(failureResult),
			want:      "its initialization has not failed",
		},
		"a result that is ignored": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result("Failure"),
			want:      "its initialization has not failed",
		},
		"default":              {namespace: failed("default"), want: "it is never initialized"},
		"kube-system":          {namespace: failed("kube-system"), want: "it is never initialized"},
		"kube-public":          {namespace: failed("kube-public"), want: "it is never initialized"},
		"kube-node-lease":      {namespace: failed("kube-node-lease"), want: "it is never initialized"},
		"the system namespace": {namespace: failed(systemNamespace), want: "it is never initialized"},
		"no label": {
			namespace: unlabelled(failed("x")),
			want:      "it lacks label nslifecycle.dev/initializing",
		},
		"a label with another value": {
			namespace: failed("x").Label(v1alpha1.LabelInitializing, "yes"),
			want:      "it lacks label nslifecycle.dev/initializing",
		},
		"no record of its creation": {
			namespace: wrappers.MakeNamespace("x").Pending(quota).Result(failureResult),
			want:      "it lacks annotation nslifecycle.dev/initializers, so it was not created to be initialized",
		},
		"protected from deletion": {
			namespace: failed("x").Label(v1alpha1.LabelDeletionProtection, "enabled"),
			want: "label nslifecycle.dev/deletion-protection protects it; to let it go, run: " +
				"kubectl label namespace x nslifecycle.dev/deletion-protection-",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			g.Expect(WhyNotDelete(namespace, Observe(namespace), systemNamespace)).To(Equal(test.want))
		})
	}
}

func TestIsExempt(t *testing.T) {
	for name, want := range map[string]bool{
		"default": true, "kube-system": true, "kube-public": true, "kube-node-lease": true, systemNamespace: true,
		"kube-other": false, "x": false, "defaults": false, "": false,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(IsExempt(name, systemNamespace)).To(Equal(want))
		})
	}
}

func FuzzSplitNames(f *testing.F) {
	for _, list := range []string{"", " , ,", rbac, rbac + "," + quota, " " + rbac + " ,," + rbac, "\u2003a,\xff,b "} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names := SplitNames(list)
		seen := map[string]bool{}
		for _, name := range names {
			if name == "" || strings.Contains(name, ",") || strings.Trim(name, blanks) != name || seen[name] {
				t.Errorf("SplitNames(%q) has entry %q, which is empty, repeated, or no name at all", list, name)
			}
			seen[name] = true
		}
		if again := SplitNames(strings.Join(names, ",")); !slices.Equal(again, names) {
			t.Errorf("SplitNames(%q) is %q, and of that again %q", list, names, again)
		}
	})
}

func FuzzObserve(f *testing.F) {
	all := strings.Join([]string{rbac, quota, mesh}, ",")
	f.Add(all, all, "", true, "true")
	f.Add(all, quota+","+mesh, failureResult, true, "true")
	f.Add(all, "", failureResult, false, "")
	f.Add(rbac, " "+mesh+" ,,"+rbac, `{"status":5}`, true, "yes")
	f.Add("", " , ", "null", true, "")
	f.Fuzz(func(t *testing.T, initializers, pending, result string, isLabelled bool, label string) {
		namespace := wrappers.MakeNamespace("x").
			Annotation(v1alpha1.AnnotationInitializers, initializers).
			Annotation(v1alpha1.AnnotationPendingInitializers, pending).
			Result(result)
		if isLabelled {
			namespace.Label(v1alpha1.LabelInitializing, label)
		}
		state := Observe(namespace.Obj())

		for _, name := range state.Pending {
			if !slices.Contains(state.All, name) {
				t.Errorf("%q is pending and not among all: %q", name, state.All)
			}
		}
		if isWaiting := state.Stage == StagePending || state.Stage == StageFailed; isWaiting != (len(state.Pending) > 0) {
			t.Errorf("the stage is %s while %q are pending", state.Stage, state.Pending)
		}
		if (state.Stage == StageFailed) != (state.Failure != nil) || state.Failure != nil && state.ResultProblem != "" {
			t.Errorf("the stage is %s with failure %v and problem %q", state.Stage, state.Failure, state.ResultProblem)
		}
		if state.Repair != nil {
			repaired := namespace.Obj()
			repaired.Labels = map[string]string{v1alpha1.LabelInitializing: *state.Repair}
			if *state.Repair == "" {
				repaired.Labels = nil
			}
			if again := Observe(repaired); again.Repair != nil {
				t.Errorf("label %q was repaired to %q, and then to %q", label, *state.Repair, *again.Repair)
			}
		}
		expectConditionsToSettle(t, namespace.Obj())
	})
}

// FuzzObserveKeepsTheOrder takes names off a list, as initializers do in whatever order.
func FuzzObserveKeepsTheOrder(f *testing.F) {
	f.Add(strings.Join([]string{rbac, quota, mesh}, ","), uint(0b101))
	f.Add(" "+rbac+",,"+quota, uint(0b10))
	f.Fuzz(func(t *testing.T, initializers string, isLeft uint) {
		all := SplitNames(initializers)
		var left []string
		for i, name := range all {
			if isLeft>>(i%64)&1 == 1 {
				left = append(left, name)
			}
		}
		state := Observe(wrappers.MakeNamespace("x").
			Annotation(v1alpha1.AnnotationInitializers, initializers).Pending(left...).Obj())
		if !slices.Equal(state.All, all) || !slices.Equal(state.Pending, left) || state.Repair != nil {
			t.Errorf("of %q with %q left, this was observed: %+v", all, left, state)
		}
	})
}

// unlabelled is the namespace without the label.
func unlabelled(namespace *wrappers.NamespaceWrapper) *wrappers.NamespaceWrapper {
	delete(namespace.Labels, v1alpha1.LabelInitializing)
	return namespace
}

func initializing(status corev1.ConditionStatus, reason string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: status, Reason: reason}
}
