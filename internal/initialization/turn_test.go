// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestTurnStart(t *testing.T) {
	const whole, templates = 31 * time.Second, v1alpha1.TemplatesInitializer
	ago := func(name string, d time.Duration) string { return FormatTurnStart(name, now.Add(-d)) }
	started, removed := ptr.To(ago(rbac, 0)), ptr.To("")

	tests := map[string]struct {
		have    string
		pending string
		// wantRemaining is compared only if the initializer has a timeout.
		hasNoTimeout, hasFailed bool
		want                    *string
		wantRemaining           time.Duration
	}{
		"the turn starts":                     {want: started, wantRemaining: whole},
		"the turn has started":                {have: ago(rbac, 10*time.Second), wantRemaining: 21 * time.Second},
		"the turn has started in this second": {have: ago(rbac, 0), wantRemaining: whole},
		"just before the timeout expires":     {have: ago(rbac, whole-time.Second), wantRemaining: time.Second},
		"expired":                             {have: ago(rbac, whole)},
		"expired long ago":                    {have: ago(rbac, whole+time.Hour), wantRemaining: -time.Hour},
		"another time zone":                   {have: rbac + " 2026-03-01T13:00:00+02:00", wantRemaining: whole - time.Hour},
		"the turn of another initializer":     {have: ago(quota, time.Hour), want: started, wantRemaining: whole},
		"a prefix of the name":                {have: ago("x"+rbac, time.Hour), want: started, wantRemaining: whole},
		"a longer name":                       {have: ago(rbac+"x", time.Hour), want: started, wantRemaining: whole},
		"only the name":                       {have: rbac, want: started, wantRemaining: whole},
		"no time":                             {have: rbac + " ", want: started, wantRemaining: whole},
		"no valid time":                       {have: rbac + " 2026-13-01T12:00:00Z", want: started, wantRemaining: whole},
		"another format":                      {have: rbac + " 1772366400", want: started, wantRemaining: whole},
		"the zero time":                       {have: rbac + " 0001-01-01T00:00:00Z", want: started, wantRemaining: whole},
		"text after the time":                 {have: ago(rbac, time.Hour) + " x", want: started, wantRemaining: whole},
		"two times":                           {have: ago(rbac, time.Hour) + " " + ago(rbac, 0), want: started, wantRemaining: whole},
		"a long time":                         {have: rbac + " 2026-03-01T11:00:00." + strings.Repeat("0", 100<<10) + "Z", want: started, wantRemaining: whole},
		"a time in the future":                {have: ago(rbac, -time.Second), want: started, wantRemaining: whole},
		"no timeout":                          {hasNoTimeout: true},
		"an empty value, no timeout":          {hasNoTimeout: true, have: ""},
		"the timeout was removed":             {hasNoTimeout: true, have: ago(rbac, 1), want: removed},
		"the turn has ended":                  {hasNoTimeout: true, have: ago(quota, 1), want: removed},
		"any text, no timeout":                {hasNoTimeout: true, have: "x", want: removed},
		"completed":                           {hasNoTimeout: true, pending: "-", have: ago(rbac, 1), want: removed},
		// Otherwise, an initializer could restart its timeout.
		"failed": {hasNoTimeout: true, hasFailed: true, have: ago(rbac, 1)},
		// The controller of templates records the turn if only templates have deadlines.
		"the turn of templates":                    {hasNoTimeout: true, pending: templates, have: ago(templates, 1)},
		"any text in the turn of templates":        {hasNoTimeout: true, pending: templates, have: templates + " x", want: removed},
		"another turn before the one of templates": {hasNoTimeout: true, pending: templates, have: ago(rbac, 1), want: removed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").Initializers(rbac, quota)
			switch test.pending {
			case "":
			case "-":
				namespace.Pending()
			default:
				namespace.Pending(test.pending)
			}
			if test.have != "" {
				namespace.Annotation(v1alpha1.AnnotationTurnStartedAt, test.have)
			}
			if test.hasFailed {
				namespace.Result(`{"status":"Failure"}`)
			}
			timeout := &Timeout{Initializer: rbac, Configuration: "c", Duration: 30 * time.Second}
			if test.hasNoTimeout {
				timeout = nil
			}
			object := namespace.Obj()
			change := turnStartChange(object, ParseState(object), timeout, now)
			g.Expect(change).To(Equal(test.want))
			if timeout != nil {
				g.Expect(timeout.Remaining(object, now)).To(Equal(test.wantRemaining))
			}
			if change != nil { // It is written once.
				object.Annotations[v1alpha1.AnnotationTurnStartedAt] = *change
				g.Expect(turnStartChange(object, ParseState(object), timeout, now.Add(time.Hour))).To(BeNil())
			}
		})
	}
}

// The recorded time has whole seconds. This must not shorten a timeout.
func TestTimeoutNeverExpiresEarly(t *testing.T) {
	timeout := &Timeout{Initializer: rbac, Duration: time.Second}
	for _, fraction := range []time.Duration{0, 1, time.Millisecond, 500 * time.Millisecond, time.Second - 1} {
		g := NewWithT(t)
		start := now.Truncate(time.Second).Add(fraction)
		namespace := wrappers.MakeNamespace("x").Annotation(v1alpha1.AnnotationTurnStartedAt, FormatTurnStart(rbac, start)).Obj()
		g.Expect(timeout.Remaining(namespace, start.Add(timeout.Duration-1))).To(BeNumerically(">", 0), fraction.String())
		g.Expect(timeout.Remaining(namespace, start.Add(timeout.Duration+time.Second))).To(BeNumerically("<=", 0), fraction.String())
	}
}
