// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// settings returns the settings of an initializer. 0 seconds means no timeout.
func settings(seconds int32, policy v1alpha1.FailurePolicy) v1alpha1.InitializerSettings {
	result := v1alpha1.InitializerSettings{FailurePolicy: policy}
	if seconds != 0 {
		result.TimeoutSeconds = ptr.To(seconds)
	}
	return result
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
			want:      &Timeout{rbac, "c", 30 * time.Second, v1alpha1.FailurePolicyFail},
		},
		"Fail": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(2592000, v1alpha1.FailurePolicyFail)},
			want:      &Timeout{rbac, "c", 720 * time.Hour, v1alpha1.FailurePolicyFail},
		},
		"Ignore": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac, quota).Pending(quota),
			settings:  map[string]v1alpha1.InitializerSettings{quota: settings(1, v1alpha1.FailurePolicyIgnore)},
			want:      &Timeout{quota, "c", time.Second, v1alpha1.FailurePolicyIgnore},
		},
		"an unknown policy": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac),
			settings:  map[string]v1alpha1.InitializerSettings{rbac: settings(1, "Whatever")},
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
			want:      &Timeout{rbac, "c", time.Second, v1alpha1.FailurePolicyFail},
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
