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

// settings returns the settings of an initializer. 0 seconds means no timeout.
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

// turn returns the condition from which a timeout is counted.
func turn(name string, status corev1.ConditionStatus, since time.Time) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializerTurn, Status: status, Reason: v1alpha1.ReasonPending,
		Message:            turnMessage(name),
		LastTransitionTime: metav1.NewTime(since),
	}
}

func TestTimeoutOf(t *testing.T) {
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		settings  map[string]v1alpha1.InitializerSettings
		want      *Timeout
	}{
		"no timeout": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: {}, quota: settings(1, "")},
		},
		"the timeout of the first initializer, with the default policy": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(30, "")},
			want:      &Timeout{rbac, "c", 30 * time.Second, v1alpha1.InitializerFail},
		},
		"Fail": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(2592000, v1alpha1.InitializerFail)},
			want:      &Timeout{rbac, "c", 720 * time.Hour, v1alpha1.InitializerFail},
		},
		"Ignore": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota),
			settings:  map[string]v1alpha1.InitializerSettings{quota: settings(1, v1alpha1.InitializerIgnore)},
			want:      &Timeout{quota, "c", time.Second, v1alpha1.InitializerIgnore},
		},
		// With Ignore, users can write to a namespace that is not prepared, so it must be set explicitly.
		"an unknown policy": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "Whatever")},
			want:      &Timeout{rbac, "c", time.Second, v1alpha1.InitializerFail},
		},
		"a timeout that the API does not accept": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(-1, "")},
		},
		"not registered": {namespace: wrappers.MakeNamespace("x").Initializers(rbac)},
		"nothing is pending": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Pending(),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "")},
		},
		"failed": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure"}`),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "")},
		},
		"an invalid result": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Success"}`),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "")},
			want:      &Timeout{rbac, "c", time.Second, v1alpha1.InitializerFail},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			registered := map[string]Registration{}
			for name, settings := range test.settings {
				registered[name] = Registration{Configuration: "c", Settings: settings}
			}
			NewWithT(t).Expect(timeoutOf(ParseState(test.namespace.Obj()), registered)).To(Equal(test.want))
		})
	}
}

func TestTurnCondition(t *testing.T) {
	timeout := &Timeout{Initializer: rbac, Configuration: "c", Duration: 30 * time.Second}
	const whole = 31 * time.Second
	started := turn(rbac, corev1.ConditionTrue, now)
	over := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializerTurn, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonCompleted,
		Message: messageNoTurn, LastTransitionTime: metav1.NewTime(now),
	}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }

	tests := map[string]struct {
		have          *corev1.NamespaceCondition
		hasNoTimeout  bool
		want          *corev1.NamespaceCondition
		wantRemaining time.Duration
	}{
		"the turn starts":                     {want: &started, wantRemaining: whole},
		"the turn has started":                {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(10*time.Second))), wantRemaining: 21 * time.Second},
		"the turn has started in this second": {have: ptr.To(turn(rbac, corev1.ConditionTrue, now)), wantRemaining: whole},
		"just before the timeout expires":     {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(whole-1))), wantRemaining: 1},
		"expired":                             {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(whole)))},
		"expired long ago":                    {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(whole+time.Hour))), wantRemaining: -time.Hour},
		"the turn of another initializer":     {have: ptr.To(turn(quota, corev1.ConditionTrue, ago(time.Hour))), want: &started, wantRemaining: whole},
		"status False":                        {have: ptr.To(turn(rbac, corev1.ConditionFalse, ago(time.Hour))), want: &started, wantRemaining: whole},
		"status Unknown":                      {have: ptr.To(turn(rbac, corev1.ConditionUnknown, ago(time.Hour))), want: &started, wantRemaining: whole},
		"no transition time":                  {have: ptr.To(turn(rbac, corev1.ConditionTrue, time.Time{})), want: &started, wantRemaining: whole},
		"a transition time in the future":     {have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(-time.Hour))), want: &started, wantRemaining: whole},
		"no timeout":                          {hasNoTimeout: true},
		"the timeout was removed":             {hasNoTimeout: true, have: ptr.To(turn(rbac, corev1.ConditionTrue, ago(1))), want: &over},
		"status False is not written again":   {hasNoTimeout: true, have: ptr.To(turn(rbac, corev1.ConditionFalse, ago(1)))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").Initializers(rbac)
			if test.have != nil {
				namespace.Condition(*test.have)
			}
			if test.hasNoTimeout {
				g.Expect(turnCondition(namespace.Obj(), nil, metav1.NewTime(now))).To(Equal(test.want))
				return
			}
			g.Expect(turnCondition(namespace.Obj(), timeout, metav1.NewTime(now))).To(Equal(test.want))
			g.Expect(TimeRemaining(namespace.Obj(), timeout, now)).To(Equal(test.wantRemaining))
		})
	}
}

// Timestamps in conditions are rounded down to seconds. The rounding must not shorten a timeout.
func TestTimeoutNeverExpiresEarly(t *testing.T) {
	timeout := &Timeout{Initializer: rbac, Duration: time.Second}
	for _, fraction := range []time.Duration{0, 1, time.Millisecond, 500 * time.Millisecond, time.Second - 1} {
		g := NewWithT(t)
		start := now.Truncate(time.Second).Add(fraction)
		condition := turnCondition(wrappers.MakeNamespace("x").Obj(), timeout, metav1.NewTime(start))
		text, err := json.Marshal(condition)
		g.Expect(err).NotTo(HaveOccurred())
		var stored corev1.NamespaceCondition
		g.Expect(json.Unmarshal(text, &stored)).To(Succeed())
		namespace := wrappers.MakeNamespace("x").Condition(stored).Obj()
		g.Expect(TimeRemaining(namespace, timeout, start.Add(timeout.Duration-1))).To(BeNumerically(">", 0), fraction.String())
		g.Expect(TimeRemaining(namespace, timeout, start.Add(timeout.Duration+time.Second))).To(BeNumerically("<=", 0), fraction.String())
	}
}

// The operator and the policies must recognize the result as a failure.
func TestTimeoutResultIsAFailure(t *testing.T) {
	g := NewWithT(t)
	timeout := &Timeout{Initializer: rbac, Configuration: "c", Duration: 90 * time.Second}
	text, err := json.Marshal(timeout.Result())
	g.Expect(err).NotTo(HaveOccurred())
	state := ParseState(wrappers.MakeNamespace("x").Initializers(rbac).Result(string(text)).Obj())
	g.Expect(state.Phase).To(Equal(PhaseFailed))
	g.Expect(FailureText(state.Failure)).To(And(HavePrefix("Timeout: "), ContainSubstring(rbac),
		ContainSubstring("1m30s"), ContainSubstring(`NamespaceInitializerConfiguration "c"`)))
	g.Expect(state.Failure.Code).To(BeEquivalentTo(504))
}
