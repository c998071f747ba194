// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// settings of an initializer; no time-out if the seconds are 0.
func settings(seconds int32, policy v1alpha1.InitializerFailurePolicy) v1alpha1.InitializerSettings {
	var result v1alpha1.InitializerSettings
	if seconds != 0 {
		result.TimeoutSeconds = ptr.To(seconds)
	}
	if policy != "" {
		result.FailurePolicy = &policy
	}
	return result
}

// turn is the condition that a limit is counted from.
func turn(name string, status corev1.ConditionStatus, since time.Time) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializerTurn, Status: status, Reason: v1alpha1.ReasonPending,
		Message:            "it is the turn of " + name + ", which has a time-out",
		LastTransitionTime: metav1.NewTime(since),
	}
}

func TestLimitOf(t *testing.T) {
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		settings  map[string]v1alpha1.InitializerSettings
		want      *Limit
	}{
		"no time-out": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: {}, quota: settings(1, "")},
		},
		"the first one's, and Fail where nothing is said": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(30, "")},
			want:      &Limit{rbac, "c", 30 * time.Second, v1alpha1.InitializerFail},
		},
		"Fail": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(2592000, v1alpha1.InitializerFail)},
			want:      &Limit{rbac, "c", 720 * time.Hour, v1alpha1.InitializerFail},
		},
		"Ignore": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota),
			settings:  map[string]v1alpha1.InitializerSettings{quota: settings(1, v1alpha1.InitializerIgnore)},
			want:      &Limit{quota, "c", time.Second, v1alpha1.InitializerIgnore},
		},
		// Never by mistake the policy that opens the gate.
		"an unknown policy": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "Whatever")},
			want:      &Limit{rbac, "c", time.Second, v1alpha1.InitializerFail},
		},
		"no time at all, which the API does not take": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(-1, "")},
		},
		"registered nowhere": {namespace: wrappers.MakeNamespace("x").Initializers(rbac)},
		"nothing is pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "")},
		},
		"failed": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "")},
		},
		"a result that is of no use": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Success"}`),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "")},
			want:      &Limit{rbac, "c", time.Second, v1alpha1.InitializerFail},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			registered := map[string]Registration{}
			for name, settings := range test.settings {
				registered[name] = Registration{Configuration: "c", Settings: settings}
			}
			NewWithT(t).Expect(LimitOf(Observe(test.namespace.Obj()), registered)).To(Equal(test.want))
		})
	}
}

func TestTurn(t *testing.T) {
	limit := &Limit{Initializer: rbac, Configuration: "c", Timeout: 30 * time.Second}
	const whole = 31 * time.Second
	begin := turn(rbac, corev1.ConditionTrue, now)
	over := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializerTurn, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonCompleted,
		Message: "it is not the turn of any initializer with a time-out", LastTransitionTime: metav1.NewTime(now),
	}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }

	tests := map[string]struct {
		have     *corev1.NamespaceCondition
		isFree   bool
		want     *corev1.NamespaceCondition
		wantLeft time.Duration
	}{
		"it begins":                       {want: &begin, wantLeft: whole},
		"it has begun":                    {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(10*time.Second))), wantLeft: 21 * time.Second},
		"it has begun in this second":     {have: ptr.To(turn(rbac, corev1.ConditionTrue, now)), wantLeft: whole},
		"the last moment":                 {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(whole-1))), wantLeft: 1},
		"over":                            {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(whole)))},
		"over for long":                   {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(whole+time.Hour))), wantLeft: -time.Hour},
		"it was the turn of somebody":     {have: ptr.To(turn(quota, corev1.ConditionTrue, ago(time.Hour))), want: &begin, wantLeft: whole},
		"it was nobody's turn":            {have: ptr.To(turn(rbac, corev1.ConditionFalse, ago(time.Hour))), want: &begin, wantLeft: whole},
		"it was forgotten":                {have: ptr.To(turn(rbac, corev1.ConditionUnknown, ago(time.Hour))), want: &begin, wantLeft: whole},
		"its time is missing":             {have: ptr.To(turn(rbac, corev1.ConditionTrue, time.Time{})), want: &begin, wantLeft: whole},
		"its time lies in the future":     {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(-time.Hour))), want: &begin, wantLeft: whole},
		"there is no time-out":            {isFree: true},
		"there is no time-out any more":   {isFree: true, have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(1))), want: &over},
		"that there is none is said once": {isFree: true, have: ptr.To(turn(rbac, corev1.ConditionFalse, ago(1)))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").Initializers(rbac)
			if test.have != nil {
				namespace.Condition(*test.have)
			}
			if test.isFree {
				g.Expect(TurnCondition(namespace.Obj(), nil, metav1.NewTime(now))).To(Equal(test.want))
				return
			}
			g.Expect(TurnCondition(namespace.Obj(), limit, metav1.NewTime(now))).To(Equal(test.want))
			g.Expect(TimeLeft(namespace.Obj(), limit, now)).To(Equal(test.wantLeft))
		})
	}
}

// A condition keeps whole seconds, rounded down: whatever is lost, nobody gets less than their time.
func TestTimeIsNeverCutShort(t *testing.T) {
	limit := &Limit{Initializer: rbac, Timeout: time.Second}
	for _, fraction := range []time.Duration{0, 1, time.Millisecond, 500 * time.Millisecond, time.Second - 1} {
		g := NewWithT(t)
		begun := now.Truncate(time.Second).Add(fraction)
		condition := TurnCondition(wrappers.MakeNamespace("x").Obj(), limit, metav1.NewTime(begun))
		text, err := json.Marshal(condition)
		g.Expect(err).NotTo(HaveOccurred())
		var stored corev1.NamespaceCondition
		g.Expect(json.Unmarshal(text, &stored)).To(Succeed())
		namespace := wrappers.MakeNamespace("x").Condition(stored).Obj()
		g.Expect(TimeLeft(namespace, limit, begun.Add(limit.Timeout-1))).To(BeNumerically(">", 0), fraction.String())
		g.Expect(TimeLeft(namespace, limit, begun.Add(limit.Timeout+time.Second))).To(BeNumerically("<=", 0), fraction.String())
	}
}

// The result must be what everybody takes for a failure: the operator, and the policies.
func TestResultOfALimitIsAFailure(t *testing.T) {
	g := NewWithT(t)
	limit := &Limit{Initializer: rbac, Configuration: "c", Timeout: 90 * time.Second}
	text, err := json.Marshal(limit.Result())
	g.Expect(err).NotTo(HaveOccurred())
	state := Observe(wrappers.MakeNamespace("x").Initializers(rbac).Result(string(text)).Obj())
	g.Expect(state.Stage).To(Equal(StageFailed))
	g.Expect(failureMessage(state.Failure)).To(Equal("Timeout: initializer rbac.corp.com: not done within 1m30s of its " +
		`turn, the time-out in NamespaceInitializerConfiguration "c"`))
	g.Expect(state.Failure.Code).To(BeEquivalentTo(504))
}
