// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/initializerhealth"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier/policytest"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// configurationServer is a fake API server with configurations and the effective set. It records writes
// as text.
type configurationServer struct {
	configurations []*wrappers.ConfigurationWrapper
	// set is the effective set, or nil if it does not exist.
	set *v1alpha1.NamespaceInitializerSet
	// These are the errors that requests return. The keys of statusErrors are configuration names.
	listError, getError, setError error
	statusErrors                  map[string]error

	writes []string
}

func (s *configurationServer) client() client.Client {
	return newFakeClient(interceptor.Funcs{
		List: s.list, Get: s.get, Create: s.create, Update: s.update, SubResourcePatch: s.patchStatus,
	})
}

func (s *configurationServer) list(
	_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption,
) error {
	for _, configuration := range s.configurations {
		items := &list.(*v1alpha1.NamespaceInitializerConfigurationList).Items
		*items = append(*items, *configuration.Obj())
	}
	return s.listError
}

func (s *configurationServer) get(
	_ context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	switch {
	case s.getError != nil:
		return s.getError
	case s.set == nil || key.Name != s.set.Name:
		return errNotFound
	}
	s.set.DeepCopyInto(object.(*v1alpha1.NamespaceInitializerSet))
	return nil
}

func (s *configurationServer) create(
	_ context.Context, _ client.WithWatch, object client.Object, opts ...client.CreateOption,
) error {
	s.recordSet("create", (&client.CreateOptions{}).ApplyOptions(opts).FieldManager, object)
	return s.setError
}

func (s *configurationServer) update(
	_ context.Context, _ client.WithWatch, object client.Object, opts ...client.UpdateOption,
) error {
	s.recordSet("update", (&client.UpdateOptions{}).ApplyOptions(opts).FieldManager, object)
	return s.setError
}

// recordSet records a write of the set, and sets the fields that the API server sets.
func (s *configurationServer) recordSet(verb, manager string, object client.Object) {
	set := object.(*v1alpha1.NamespaceInitializerSet)
	var entries []string
	for _, entry := range set.Initializers {
		entries = append(entries, entry.Name+" of "+entry.Configuration)
	}
	s.writes = append(s.writes, fmt.Sprintf("%s %s by %s: [%s] in %s",
		verb, set.Name, manager, strings.Join(entries, ", "), set.SystemNamespace))
	set.UID, set.ResourceVersion, set.Generation = "set-uid", "8", set.Generation+1
	set.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
}

func (s *configurationServer) patchStatus(
	_ context.Context, _ client.Client, subResource string, object client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var body v1alpha1.NamespaceInitializerConfiguration
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	write := fmt.Sprintf("%s/%s by %s, resourceVersion=%s:",
		object.GetName(), subResource, options.FieldManager, body.ResourceVersion)
	for _, condition := range body.Status.Conditions {
		write += fmt.Sprintf(" %s=%s/%s", condition.Type, condition.Status, condition.Reason)
	}
	s.writes = append(s.writes, write)
	return s.statusErrors[object.GetName()]
}

func TestConfigurationReconcile(t *testing.T) {
	const (
		ofRBAC = "effective by nslifecycle: [rbac.corp.com of one] in nslifecycle-system"
		status = "/status by nslifecycle, resourceVersion=5: Active="
		// healthy is the suffix of a recorded write that sets both conditions.
		healthy = " Healthy=True/Healthy"
	)
	configuration := func(name string, initializers ...string) *wrappers.ConfigurationWrapper {
		wrapper := wrappers.MakeConfiguration(name).Initializers(initializers...).Generation(1)
		wrapper.ResourceVersion = "5"
		return wrapper
	}
	enforced := func(wrapper *wrappers.ConfigurationWrapper) *wrappers.ConfigurationWrapper {
		meta.SetStatusCondition(&wrapper.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionActive, Status: metav1.ConditionTrue, ObservedGeneration: 1,
			Reason: v1alpha1.ReasonEnforced, Message: "every new namespace gets these initializers", LastTransitionTime: metav1.NewTime(now),
		})
		health := initialization.HealthyCondition(wrapper.Obj(), initialization.Health{IsAuthorized: true})
		health.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&wrapper.Status.Conditions, health)
		return wrapper
	}
	changed := func(change func(*v1alpha1.NamespaceInitializerSet)) *v1alpha1.NamespaceInitializerSet {
		set := verifiedSet("rbac.corp.com")
		change(set)
		return set
	}
	tests := map[string]struct {
		server     configurationServer
		wantWrites []string
		wantRetry  time.Duration
		wantError  string
	}{
		"the set is created even without configurations": {
			wantWrites: []string{"create effective by nslifecycle: [] in nslifecycle-system"},
			wantRetry:  verificationTimeout,
		},
		"the first configuration": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{configuration("one", "rbac.corp.com")},
			},
			wantWrites: []string{"create " + ofRBAC},
			wantRetry:  verificationTimeout,
		},
		"nothing has changed": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{enforced(configuration("one", "rbac.corp.com"))},
				set:            verifiedSet("rbac.corp.com"),
			},
		},
		"only the status is missing": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{configuration("one", "rbac.corp.com")},
				set:            verifiedSet("rbac.corp.com"),
			},
			wantWrites: []string{"one" + status + "True/Enforced" + healthy},
		},
		"only the generation has changed": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{
					enforced(configuration("one", "rbac.corp.com")).Generation(2),
				},
				set: verifiedSet("rbac.corp.com"),
			},
			wantWrites: []string{"one" + status + "True/Enforced" + healthy},
		},
		"another client has edited the set": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{enforced(configuration("one", "rbac.corp.com"))},
				set:            verifiedSet("rbac.corp.com", "mine.corp.com"),
			},
			wantWrites: []string{"update " + ofRBAC},
			wantRetry:  verificationTimeout,
		},
		"the set names another configuration": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{enforced(configuration("one", "rbac.corp.com"))},
				set: changed(func(set *v1alpha1.NamespaceInitializerSet) {
					set.Initializers[0].Configuration = "another"
				}),
			},
			wantWrites: []string{"update " + ofRBAC},
			wantRetry:  verificationTimeout,
		},
		"the system namespace has changed": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{enforced(configuration("one", "rbac.corp.com"))},
				set:            changed(func(set *v1alpha1.NamespaceInitializerSet) { set.SystemNamespace = "elsewhere" }),
			},
			wantWrites: []string{"update " + ofRBAC},
			wantRetry:  verificationTimeout,
		},
		"the user name of the operator has changed": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{enforced(configuration("one", "rbac.corp.com"))},
				set:            changed(func(set *v1alpha1.NamespaceInitializerSet) { set.Operator = "previous" }),
			},
			wantWrites: []string{"update " + ofRBAC},
			wantRetry:  verificationTimeout,
		},
		"a configuration is being deleted": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{
					enforced(configuration("one", "rbac.corp.com")),
					configuration("two", "quota.corp.com").Terminating(now, "corp.com/keep"),
				},
				set: verifiedSet("rbac.corp.com"),
			},
		},
		"an empty configuration, and a configuration with too many initializers": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{
					configuration("empty"), enforced(configuration("one", "rbac.corp.com")),
					configuration("too-many", numbered(v1alpha1.MaxSetInitializers)...),
				},
				set: verifiedSet("rbac.corp.com"),
			},
			wantWrites: []string{"empty" + status + "True/Empty" + healthy, "too-many" + status + "False/TooManyInitializers" + healthy},
		},
		"no policy is installed": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{enforced(configuration("one", "rbac.corp.com"))},
				set: changed(func(set *v1alpha1.NamespaceInitializerSet) {
					set.Status.Conditions[0].Status, set.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonPolicyMissing
				}),
			},
			wantWrites: []string{"one" + status + "False/PolicyMissing" + healthy},
		},

		// Errors.
		"the configurations cannot be listed": {
			server:    configurationServer{listError: errOutage},
			wantError: "failed to read *v1alpha1.NamespaceInitializerConfigurationList from the API server: " + errOutage.Error(),
		},
		"the set cannot be read": {
			server:    configurationServer{getError: errOutage},
			wantError: `failed to get NamespaceInitializerSet "effective": ` + errOutage.Error(),
		},
		"the set cannot be written; no status is written": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{configuration("one", "rbac.corp.com")},
				setError:       errOutage,
			},
			wantWrites: []string{"create " + ofRBAC},
			wantError:  `failed to write NamespaceInitializerSet "effective": ` + errOutage.Error(),
		},
		"the cached set is stale": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{configuration("one", "rbac.corp.com")},
				set:            verifiedSet(), setError: errConflict,
			},
			wantWrites: []string{"update " + ofRBAC},
			wantRetry:  conflictRetry,
		},
		"a cached status is stale": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{configuration("one", "rbac.corp.com")},
				set:            verifiedSet("rbac.corp.com"),
				statusErrors:   map[string]error{"one": errConflict},
			},
			wantWrites: []string{"one" + status + "True/Enforced" + healthy},
			wantRetry:  conflictRetry,
		},
		"one status cannot be written; the other statuses are written": {
			server: configurationServer{
				configurations: []*wrappers.ConfigurationWrapper{
					configuration("deleted"), configuration("one", "rbac.corp.com"), configuration("two"),
				},
				set:          verifiedSet("rbac.corp.com"),
				statusErrors: map[string]error{"deleted": errNotFound, "one": errOutage},
			},
			wantWrites: []string{
				"deleted" + status + "True/Empty" + healthy, "one" + status + "True/Enforced" + healthy, "two" + status + "True/Empty" + healthy,
			},
			wantError: `failed to update the status of NamespaceInitializerConfiguration "one": ` + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reconciler := &ConfigurationReconciler{
				Clock:  clocktesting.NewFakePassiveClock(now),
				Client: test.server.client(), Live: test.server.client(),
				HealthChecker: newHealthChecker(), SystemNamespace: systemNamespace,
			}
			result, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
			if test.wantRetry == 0 && test.wantError == "" {
				test.wantRetry = initializerhealth.Interval
			}
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.wantRetry}))
			if test.wantError == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
		})
	}
}

// The previous leader may have observed a configuration that the cache does not contain yet.
func TestConfigurationReconcileWithOutdatedCache(t *testing.T) {
	g := NewWithT(t)
	configuration := wrappers.MakeConfiguration("one").Initializers("rbac.corp.com").Generation(1)
	configuration.UID = "one-uid"
	live := &configurationServer{configurations: []*wrappers.ConfigurationWrapper{configuration}}
	cached := &configurationServer{set: policytest.Set("rbac.corp.com")}
	reconciler := &ConfigurationReconciler{
		Clock:  clocktesting.NewFakePassiveClock(now),
		Client: cached.client(), Live: live.client(),
		SystemNamespace: systemNamespace,
	}
	result, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: firstRetryDelay}))
	g.Expect(cached.writes).To(BeEmpty())
}

// A manager may never run the admission controller.
func TestConfigurationReconcileWithoutVerification(t *testing.T) {
	g := NewWithT(t)
	configuration := wrappers.MakeConfiguration("one").Initializers("rbac.corp.com").Generation(1)
	configuration.ResourceVersion = "5"
	outdated := verifiedSet("rbac.corp.com")
	outdated.Generation++
	server := &configurationServer{configurations: []*wrappers.ConfigurationWrapper{configuration}, set: outdated}
	clock := clocktesting.NewFakeClock(now)
	reconciler := &ConfigurationReconciler{
		Clock: clock, Client: server.client(), Live: server.client(), HealthChecker: newHealthChecker(),
		SystemNamespace: systemNamespace,
	}
	expect := func(retryAfter time.Duration, writes ...string) {
		t.Helper()
		result, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: retryAfter}))
		g.Expect(server.writes).To(Equal(writes))
	}
	expect(verificationTimeout)
	clock.Step(verificationTimeout - time.Millisecond)
	expect(time.Millisecond)
	clock.Step(time.Millisecond)
	pending := "one/status by nslifecycle, resourceVersion=5: Active=False/EnforcementPending Healthy=True/Healthy"
	expect(initializerhealth.Interval, pending)

	server.set.Status.ObservedGeneration++
	enforced := "one/status by nslifecycle, resourceVersion=5: Active=True/Enforced Healthy=True/Healthy"
	expect(initializerhealth.Interval, pending, enforced)
}

func numbered(count int) []string {
	names := make([]string, 0, count)
	for i := range count {
		names = append(names, fmt.Sprintf("n-%d.corp.com", i))
	}
	return names
}
