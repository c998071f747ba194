// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"errors"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// The initializers in these tests.
const (
	rbac  = "rbac.corp.com"
	quota = "quota.corp.com"
	mesh  = "mesh.corp.com"
)

const (
	systemNamespace = "nslifecycle-system"
	sourceNamespace = "nslifecycle-sources"
)

var exempt = Exempt(systemNamespace, sourceNamespace)

// failureResult is a failure result in the format that initializers write.
const failureResult = `{"kind":"Status","apiVersion":"v1","metadata":{},` +
	`"status":"Failure","message":"no quota left","reason":"Forbidden","code":403}`

func TestParseState(t *testing.T) {
	failure := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: "no quota left", Reason: metav1.StatusReasonForbidden, Code: 403,
	}

	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      State
	}{
		"no state": {
			namespace: wrappers.MakeNamespace("x"),
			want:      State{Phase: PhaseInitialized},
		},
		"labels and annotations of other controllers": {
			namespace: wrappers.MakeNamespace("x").Label("app", "true").Annotation("corp.com/initializers", rbac),
			want:      State{Phase: PhaseInitialized},
		},
		"all initializers are pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh),
			want: State{
				Phase: PhaseInitializing, All: []string{rbac, quota, mesh}, Pending: []string{rbac, quota, mesh},
			},
		},
		"some initializers are pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh).Pending(quota, mesh),
			want:      State{Phase: PhaseInitializing, All: []string{rbac, quota, mesh}, Pending: []string{quota, mesh}},
		},
		"all initializers have completed": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(),
			want:      State{Phase: PhaseInitialized, All: []string{rbac, quota}},
		},
		"a condition does not decide": {
			namespace: wrappers.MakeNamespace("x").Condition(initializing(corev1.ConditionTrue, v1alpha1.ReasonInitializing)),
			want:      State{Phase: PhaseInitialized},
		},
		"the list was edited manually": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).
				Annotation(v1alpha1.AnnotationPendingInitializers, " ,"+rbac+", "+quota+"\t,\n,"+rbac),
			want: State{Phase: PhaseInitializing, All: []string{rbac, quota}, Pending: []string{rbac, quota}},
		},
		"the list contains a name that it did not contain at creation": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(mesh, rbac),
			want:      State{Phase: PhaseInitializing, All: []string{rbac, mesh}, Pending: []string{mesh, rbac}},
		},
		"no record of the initializers at creation": {
			namespace: wrappers.MakeNamespace("x").Pending(rbac, quota),
			want:      State{Phase: PhaseInitializing, All: []string{rbac, quota}, Pending: []string{rbac, quota}},
		},

		// Namespaces whose label does not match the list.
		"the label is missing": {
			namespace: unlabeled(wrappers.MakeNamespace("x").Initializers(rbac)),
			want: State{
				Phase: PhaseInitializing, All: []string{rbac}, Pending: []string{rbac}, LabelRepair: ptr.To("true"),
			},
		},
		"the label has another value": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Label(v1alpha1.LabelInitializing, "yes"),
			want: State{
				Phase: PhaseInitializing, All: []string{rbac}, Pending: []string{rbac}, LabelRepair: ptr.To("true"),
			},
		},
		"a label without a list": {
			namespace: wrappers.MakeNamespace("x").Label(v1alpha1.LabelInitializing, "true"),
			want:      State{Phase: PhaseInitialized, LabelRepair: ptr.To("")},
		},
		"a label without a value and without a list": {
			namespace: wrappers.MakeNamespace("x").Label(v1alpha1.LabelInitializing, ""),
			want:      State{Phase: PhaseInitialized, LabelRepair: ptr.To("")},
		},
		"a label after the list has become empty": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending().Label(v1alpha1.LabelInitializing, "true"),
			want:      State{Phase: PhaseInitialized, All: []string{rbac}, LabelRepair: ptr.To("")},
		},
		"a list of spaces": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).
				Annotation(v1alpha1.AnnotationPendingInitializers, " , ,"),
			want: State{Phase: PhaseInitialized, All: []string{rbac}, LabelRepair: ptr.To("")},
		},

		// Namespaces with a result.
		"failed": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota).Result(failureResult),
			want: State{
				Phase: PhaseFailed, All: []string{rbac, quota}, Pending: []string{quota}, Failure: failure,
			},
		},
		"failed without reason and message": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`),
			want: State{
				Phase: PhaseFailed, All: []string{rbac}, Pending: []string{rbac},
				Failure: &metav1.Status{Status: metav1.StatusFailure},
			},
		},
		"failed, and the label is missing": {
			namespace: unlabeled(wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`)),
			want: State{
				Phase: PhaseFailed, All: []string{rbac}, Pending: []string{rbac},
				Failure: &metav1.Status{Status: metav1.StatusFailure}, LabelRepair: ptr.To("true"),
			},
		},
		"a result is ignored if no initializer is pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending().Result(failureResult),
			want:      State{Phase: PhaseInitialized, All: []string{rbac}},
		},
		"a result on a namespace that never had initializers is ignored": {
			namespace: wrappers.MakeNamespace("x").Result(failureResult),
			want:      State{Phase: PhaseInitialized},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			g.Expect(ParseState(namespace)).To(Equal(test.want))
			g.Expect(namespace).To(Equal(test.namespace.Obj()), "the argument must not change")
		})
	}
}

func TestParseStateWithoutAnyMap(t *testing.T) {
	g := NewWithT(t)
	g.Expect(ParseState(&corev1.Namespace{})).To(Equal(State{Phase: PhaseInitialized}))
}

func TestParseStateIgnoresInvalidResults(t *testing.T) {
	noJSON := func(text string) string { return ignoredResultMessage(errors.New(text), "") }
	status := func(status string) string { return ignoredResultMessage(nil, status) }
	tests := map[string]struct {
		result string
		// want is the expected prefix of ResultProblem.
		want string
	}{
		"not JSON":                      {result: "Failure", want: noJSON("")},
		"truncated":                     {result: `{"status":"Failure"`, want: noJSON("unexpected end of JSON input")},
		"an array instead of an object": {result: `["Failure"]`, want: noJSON("")},
		"an object as status":           {result: `{"status":{}}`, want: noJSON("")},
		"null":                          {result: "null", want: status("")},
		"no status":                     {result: `{"message":"Failure"}`, want: status("")},
		"success":                       {result: `{"status":"Success"}`, want: status("Success")},
		"another value":                 {result: `{"status":"Failed"}`, want: status("Failed")},
		"the value in lower case":       {result: `{"status":"failure"}`, want: status("failure")},
		"the field name capitalized":    {result: `{"Status":"Failure"}`, want: status("")},
		"the field in another object":   {result: `{"details":{"status":"Failure"}}`, want: status("")},
		"escaped": {
			result: `{"\u0073tatus":"Failure"}`,
			want:   status(metav1.StatusFailure),
		},
		"after text with one brace": {
			result: `{"message":"{","status":"Failure"}`,
			want:   status(metav1.StatusFailure),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := ParseState(wrappers.MakeNamespace("x").Initializers(rbac).Result(test.result).Obj())
			g.Expect(state.ResultProblem).To(HavePrefix(test.want))
			state.ResultProblem = ""
			g.Expect(state).To(Equal(State{Phase: PhaseInitializing, All: []string{rbac}, Pending: []string{rbac}}))
		})
	}
}

// The admission policies treat each of these results as a failure, so the operator must do the
// same.
func TestParseStateOfAFailureThatIsNotAStatus(t *testing.T) {
	problem := invalidResultMessage(errors.New(""))
	tests := map[string]struct{ result, wantProblem string }{
		"a code that is not a number": {result: `{"status":"Failure","code":"NaN"}`, wantProblem: problem},
		"a trailing comma":            {result: `{"status":"Failure",}`, wantProblem: problem},
		"text after the object":       {result: `{"status":"Failure"} {}`, wantProblem: problem},
		"twice":                       {result: `{"status":"Failure","status":"Failure"}`},
		"a duplicate status with a different second value": {
			result: `{"status":"Failure","status":"Success"}`,
		},
		"a duplicate status with a different first value": {result: `{"status":"Success","status":"Failure"}`},
		"after an object": {result: `{"metadata":{},"status":"Failure"}`},
		"an empty result": {result: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := ParseState(wrappers.MakeNamespace("x").Initializers(rbac).Result(test.result).Obj())
			if test.result == "" {
				g.Expect(state).To(Equal(State{Phase: PhaseInitializing, All: []string{rbac}, Pending: []string{rbac}}))
				return
			}
			g.Expect(state.Phase).To(Equal(PhaseFailed))
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
		"empty":                          {list: ""},
		"blanks":                         {list: " \t\n"},
		"commas":                         {list: ",,"},
		"commas and spaces":              {list: " , ,"},
		"one":                            {list: rbac, want: []string{rbac}},
		"several names keep their order": {list: rbac + "," + mesh + "," + quota, want: []string{rbac, mesh, quota}},
		"spaces around names":            {list: " " + rbac + " ,\n" + mesh + "\t", want: []string{rbac, mesh}},
		"a comma at either end":          {list: "," + rbac + ",", want: []string{rbac}},
		"repeats":                        {list: rbac + "," + mesh + ", " + rbac, want: []string{rbac, mesh}},
		"a space inside a name":          {list: "rbac corp", want: []string{"rbac corp"}},
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
			want:      messageNotFailed,
		},
		"completed": {
			namespace: failed("x").Pending(),
			want:      messageNotFailed,
		},
		"not required": {
			namespace: wrappers.MakeNamespace("x").Result(failureResult),
			want:      messageNotFailed,
		},
		"an ignored result": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result("Failure"),
			want:      messageNotFailed,
		},
		"default":              {namespace: failed("default"), want: messageExempt},
		"kube-system":          {namespace: failed("kube-system"), want: messageExempt},
		"kube-public":          {namespace: failed("kube-public"), want: messageExempt},
		"kube-node-lease":      {namespace: failed("kube-node-lease"), want: messageExempt},
		"the system namespace": {namespace: failed(systemNamespace), want: messageExempt},
		"no label": {
			namespace: unlabeled(failed("x")),
			want:      messageNoLabel,
		},
		"a label with another value": {
			namespace: failed("x").Label(v1alpha1.LabelInitializing, "yes"),
			want:      messageNoLabel,
		},
		"no record of the initializers at creation": {
			namespace: wrappers.MakeNamespace("x").Pending(quota).Result(failureResult),
			want:      messageNoInitializer,
		},
		"protected from deletion": {
			namespace: failed("x").Label(v1alpha1.LabelDeletionProtection, "enabled"),
			want:      nsobject.ProtectionMessage(failed("x").Label(v1alpha1.LabelDeletionProtection, "").Obj()),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			g.Expect(WhyNotDelete(namespace, ParseState(namespace), exempt)).To(Equal(test.want))
		})
	}
}

func TestExempt(t *testing.T) {
	g := NewWithT(t)
	required := []string{"default", "kube-node-lease", "kube-public", "kube-system"}
	g.Expect(exempt).To(ConsistOf(append(required, systemNamespace, sourceNamespace)))
	g.Expect(Exempt("", "")).To(ConsistOf(required), "a generated name, which is empty at first, is not exempt")
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
				t.Errorf("SplitNames(%q) contains entry %q, which is empty, repeated or not a name", list, name)
			}
			seen[name] = true
		}
		if again := SplitNames(strings.Join(names, ",")); !slices.Equal(again, names) {
			t.Errorf("SplitNames(%q) is %q; splitting the result returns %q", list, names, again)
		}
	})
}

func FuzzParseState(f *testing.F) {
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
		state := ParseState(namespace.Obj())

		for _, name := range state.Pending {
			if !slices.Contains(state.All, name) {
				t.Errorf("%q is pending, but is not in All: %q", name, state.All)
			}
		}
		if isWaiting := state.Phase == PhaseInitializing || state.Phase == PhaseFailed; isWaiting != (len(state.Pending) > 0) {
			t.Errorf("the phase is %s while %q are pending", state.Phase, state.Pending)
		}
		if (state.Phase == PhaseFailed) != (state.Failure != nil) || state.Failure != nil && state.ResultProblem != "" {
			t.Errorf("the phase is %s with failure %v and problem %q", state.Phase, state.Failure, state.ResultProblem)
		}
		if state.LabelRepair != nil {
			repaired := namespace.Obj()
			repaired.Labels = map[string]string{v1alpha1.LabelInitializing: *state.LabelRepair}
			if *state.LabelRepair == "" {
				repaired.Labels = nil
			}
			if again := ParseState(repaired); again.LabelRepair != nil {
				t.Errorf("label %q was repaired to %q, and then to %q", label, *state.LabelRepair, *again.LabelRepair)
			}
		}
		expectConditionsToSettle(t, namespace.Obj())
	})
}

// FuzzParseStateKeepsTheOrder removes arbitrary names from a list.
func FuzzParseStateKeepsTheOrder(f *testing.F) {
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
		state := ParseState(wrappers.MakeNamespace("x").
			Annotation(v1alpha1.AnnotationInitializers, initializers).Pending(left...).Obj())
		if !slices.Equal(state.All, all) || !slices.Equal(state.Pending, left) || state.LabelRepair != nil {
			t.Errorf("the state for list %q with pending %q is %+v", all, left, state)
		}
	})
}

// unlabeled removes the label from a namespace and returns the namespace.
func unlabeled(namespace *wrappers.NamespaceWrapper) *wrappers.NamespaceWrapper {
	delete(namespace.Labels, v1alpha1.LabelInitializing)
	return namespace
}

func initializing(status corev1.ConditionStatus, reason string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: v1alpha1.ConditionInitializing, Status: status, Reason: reason}
}
