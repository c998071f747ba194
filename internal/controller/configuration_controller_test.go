// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/initializerhealth"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// configurationServer is a fake API server with configurations and the effective set. It records writes
// as text.
type configurationServer struct {
	configurations []*wrappers.ConfigurationWrapper
	// set is the effective set, or nil if it does not exist.
	set *internalv1alpha1.NamespaceInitializerSet
	// These are the errors that requests return. The keys of statusErrors are configuration names.
	listError, getError, setError error
	statusErrors                  map[string]error

	writes []string
}

func (s *configurationServer) client() client.Client {
	return newFakeClient(interceptor.Funcs{List: s.list, Get: s.get, Create: s.create, Update: s.update, SubResourcePatch: s.patchStatus})
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
	s.set.DeepCopyInto(object.(*internalv1alpha1.NamespaceInitializerSet))
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
	set := object.(*internalv1alpha1.NamespaceInitializerSet)
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
	body, err := bodyOf[v1alpha1.NamespaceInitializerConfiguration](object, patch)
	if err != nil {
		return err
	}
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	write := fmt.Sprintf("%s/%s by %s, resourceVersion=%s, observedGeneration=%d:",
		object.GetName(), subResource, options.FieldManager, body.ResourceVersion, body.Status.ObservedGeneration)
	for _, condition := range body.Status.Conditions {
		write += fmt.Sprintf(" %s=%s/%s", condition.Type, condition.Status, condition.Reason)
	}
	s.writes = append(s.writes, write)
	return s.statusErrors[object.GetName()]
}

func TestConfigurationReconcile(t *testing.T) {
	const ofRBAC = "effective by nslifecycle: [rbac.corp.com of one] in nslifecycle-system"
	type configurations = []*wrappers.ConfigurationWrapper
	// wrote returns the recorded write of the status of a configuration that is healthy.
	// Ready is like Active. The generation is 0 if it has not changed.
	wrote := func(name, active string) string {
		write := fmt.Sprintf("%s/status by nslifecycle, resourceVersion=5, observedGeneration=1: Ready=%s Active=%s Healthy=True/Healthy",
			name, active, active)
		if strings.HasSuffix(active, "TooManyInitializers") {
			write += " Stalled=True/TooManyInitializers"
		}
		return write
	}
	configuration := func(name string, initializers ...string) *wrappers.ConfigurationWrapper {
		wrapper := wrappers.MakeConfiguration(name).Initializers(initializers...).Generation(1)
		wrapper.ResourceVersion = "5"
		return wrapper
	}
	enforced := func(wrapper *wrappers.ConfigurationWrapper) *wrappers.ConfigurationWrapper {
		active := metav1.Condition{
			Type: v1alpha1.ConditionActive, Status: metav1.ConditionTrue, ObservedGeneration: 1,
			Reason: v1alpha1.ReasonEnforced, Message: "every new namespace gets these initializers",
		}
		health := initialization.HealthyCondition(wrapper.Obj(), initialization.Health{IsAuthorized: true})
		setConditions(&wrapper.Status.Conditions, initialization.ConfigurationConditions(active, health), 1, now)
		wrapper.Status.ObservedGeneration = 1
		return wrapper
	}
	changed := func(change func(*internalv1alpha1.NamespaceInitializerSet)) *internalv1alpha1.NamespaceInitializerSet {
		set := verifiedSet("rbac.corp.com")
		change(set)
		return set
	}
	one := configuration("one", "rbac.corp.com")
	known := enforced(configuration("one", "rbac.corp.com"))
	tests := map[string]struct {
		server     configurationServer
		wantWrites []string
		wantRetry  time.Duration
		wantError  string
	}{
		"the set is created even without configurations": {
			wantWrites: []string{"create effective by nslifecycle: [] in nslifecycle-system"}, wantRetry: verificationTimeout,
		},
		"the first configuration": {
			server: configurationServer{configurations: configurations{one}}, wantWrites: []string{"create " + ofRBAC},
			wantRetry: verificationTimeout,
		},
		"nothing has changed": {
			server: configurationServer{configurations: configurations{known}, set: verifiedSet("rbac.corp.com")},
		},
		"only the status is missing": {
			server:     configurationServer{configurations: configurations{one}, set: verifiedSet("rbac.corp.com")},
			wantWrites: []string{wrote("one", "True/Enforced")},
		},
		"only the generation has changed": {
			server: configurationServer{
				configurations: configurations{enforced(configuration("one", "rbac.corp.com")).Generation(2)},
				set:            verifiedSet("rbac.corp.com"),
			},
			wantWrites: []string{strings.Replace(wrote("one", "True/Enforced"), "Generation=1", "Generation=2", 1)},
		},
		"another client has edited the set": {
			server: configurationServer{
				configurations: configurations{known},
				set:            verifiedSet("rbac.corp.com", "mine.corp.com"),
			},
			wantWrites: []string{"update " + ofRBAC}, wantRetry: verificationTimeout,
		},
		"the set names another configuration": {
			server: configurationServer{
				configurations: configurations{known},
				set:            changed(func(set *internalv1alpha1.NamespaceInitializerSet) { set.Initializers[0].Configuration = "another" }),
			},
			wantWrites: []string{"update " + ofRBAC}, wantRetry: verificationTimeout,
		},
		"the system namespace has changed": {
			server: configurationServer{
				configurations: configurations{known},
				set:            changed(func(set *internalv1alpha1.NamespaceInitializerSet) { set.SystemNamespace = "elsewhere" }),
			},
			wantWrites: []string{"update " + ofRBAC}, wantRetry: verificationTimeout,
		},
		"the source namespace has changed": {
			server: configurationServer{
				configurations: configurations{known},
				set:            changed(func(set *internalv1alpha1.NamespaceInitializerSet) { set.SourceNamespace = "elsewhere" }),
			},
			wantWrites: []string{"update " + ofRBAC}, wantRetry: verificationTimeout,
		},
		"the user name of the operator has changed": {
			server: configurationServer{
				configurations: configurations{known},
				set:            changed(func(set *internalv1alpha1.NamespaceInitializerSet) { set.Operators = []string{"previous"} }),
			},
			wantWrites: []string{"update " + ofRBAC}, wantRetry: verificationTimeout,
		},
		"a configuration is being deleted": {
			server: configurationServer{
				configurations: configurations{known, configuration("two", "quota.corp.com").Terminating(now, "corp.com/keep")},
				set:            verifiedSet("rbac.corp.com"),
			},
		},
		"an empty configuration, and a configuration with too many initializers": {
			server: configurationServer{
				configurations: configurations{
					configuration("empty"), known,
					configuration("too-many", numbered(internalv1alpha1.MaxInitializers)...),
				},
				set: verifiedSet("rbac.corp.com"),
			},
			wantWrites: []string{wrote("empty", "True/Empty"), wrote("too-many", "False/TooManyInitializers")},
		},
		"no policy is installed": {
			server: configurationServer{
				configurations: configurations{known},
				set: changed(func(set *internalv1alpha1.NamespaceInitializerSet) {
					set.Status.Conditions[0].Status, set.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonPolicyMissing
				}),
			},
			wantWrites: []string{strings.Replace(wrote("one", "False/PolicyMissing"), "Generation=1", "Generation=0", 1)},
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
			server:     configurationServer{configurations: configurations{one}, setError: errOutage},
			wantWrites: []string{"create " + ofRBAC},
			wantError:  `failed to write NamespaceInitializerSet "effective": ` + errOutage.Error(),
		},
		"the cached set is stale": {
			server:     configurationServer{configurations: configurations{one}, set: verifiedSet(), setError: errConflict},
			wantWrites: []string{"update " + ofRBAC}, wantRetry: conflictRetry,
		},
		"a cached status is stale": {
			server: configurationServer{
				configurations: configurations{one},
				set:            verifiedSet("rbac.corp.com"),
				statusErrors:   map[string]error{"one": errConflict},
			},
			wantWrites: []string{wrote("one", "True/Enforced")}, wantRetry: conflictRetry,
		},
		"one status cannot be written; the other statuses are written": {
			server: configurationServer{
				configurations: configurations{configuration("deleted"), one, configuration("two")},
				set:            verifiedSet("rbac.corp.com"),
				statusErrors:   map[string]error{"deleted": errNotFound, "one": errOutage},
			},
			wantWrites: []string{wrote("deleted", "True/Empty"), wrote("one", "True/Enforced"), wrote("two", "True/Empty")},
			wantError:  `failed to update the status of NamespaceInitializerConfiguration "one": ` + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reconciler := &ConfigurationReconciler{
				Clock:  clocktesting.NewFakePassiveClock(now),
				Client: test.server.client(), Live: test.server.client(),
				HealthChecker: newHealthChecker(), SystemNamespace: systemNamespace, SourceNamespace: sourceNamespace,
				Recorder: events.NewFakeRecorder(10),
			}
			result, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
			if test.wantRetry == 0 && test.wantError == "" {
				test.wantRetry = initializerhealth.Interval
			}
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.wantRetry}))
			g.Expect(err).To(matchError(test.wantError))
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
		SystemNamespace: systemNamespace, SourceNamespace: sourceNamespace, Recorder: events.NewFakeRecorder(10),
	}
	result, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: conflictRetry}))
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
		SystemNamespace: systemNamespace, SourceNamespace: sourceNamespace, Recorder: events.NewFakeRecorder(10),
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
	pending := "one/status by nslifecycle, resourceVersion=5, observedGeneration=1: Ready=False/EnforcementPending Active=False/EnforcementPending Healthy=True/Healthy"
	expect(initializerhealth.Interval, pending)

	server.set.Status.ObservedGeneration++
	enforced := "one/status by nslifecycle, resourceVersion=5, observedGeneration=1: Ready=True/Enforced Active=True/Enforced Healthy=True/Healthy"
	expect(initializerhealth.Interval, pending, enforced)
}

func numbered(count int) []string {
	names := make([]string, 0, count)
	for i := range count {
		names = append(names, fmt.Sprintf("n-%d.corp.com", i))
	}
	return names
}

func TestSetConditions(t *testing.T) {
	g := NewWithT(t)
	earlier := now.Add(-time.Hour)
	foreign := metav1.Condition{Type: "example.com/Reviewed", Status: "True", Reason: "z"}
	conditions := []metav1.Condition{foreign}
	setConditions(&conditions, []metav1.Condition{
		{Type: "Ready", Status: "False", Reason: "x"}, {Type: "Stalled", Status: "True", Reason: "x"},
	}, 1, earlier)
	known := conditions
	setConditions(&conditions, []metav1.Condition{{Type: "Ready", Status: "False", Reason: "y"}}, 2, now)
	g.Expect(conditions).To(Equal([]metav1.Condition{foreign, {
		Type: "Ready", Status: "False", Reason: "y", ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(earlier),
	}}))
	g.Expect(known).To(HaveLen(3), "the list may be that of a cache")
}

// authorizedInitializer returns the permissions of an initializer.
func authorizedInitializer() (*rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbInitialize},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "corp", Name: "initializer"}},
	}
	return role, binding
}

// newHealthChecker returns a health checker that reports all initializers as healthy.
func newHealthChecker() *initializerhealth.Checker {
	role, binding := authorizedInitializer()
	return &initializerhealth.Checker{
		Client: newFakeClient(interceptor.Funcs{}), Live: newFakeClient(interceptor.Funcs{}, role, binding),
		ServerClock: servertime.NewClock(clocktesting.NewFakePassiveClock(now)),
	}
}

// Both conditions are written in the same request, and the health is checked periodically.
func TestConfigurationReconcileReportsHealth(t *testing.T) {
	g := NewWithT(t)
	configuration := wrappers.MakeConfiguration("one").Initializers("rbac.corp.com")
	configuration.ResourceVersion = "5"
	server := &configurationServer{configurations: []*wrappers.ConfigurationWrapper{configuration}, set: verifiedSet("rbac.corp.com")}
	c := server.client()
	passive := clocktesting.NewFakePassiveClock(now)
	recorder := events.NewFakeRecorder(10)
	reconciler := &ConfigurationReconciler{
		Clock:  clocktesting.NewFakePassiveClock(now),
		Client: c, Live: c, SystemNamespace: systemNamespace, SourceNamespace: sourceNamespace, Recorder: recorder,
		HealthChecker: &initializerhealth.Checker{Client: newFakeClient(interceptor.Funcs{}), Live: newFakeClient(interceptor.Funcs{}), ServerClock: servertime.NewClock(passive)},
	}
	result, err := reconciler.Reconcile(t.Context(), requestFor(internalv1alpha1.EffectiveSetName))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(ContainElement(
		HaveSuffix(": Ready=False/InitializerUnauthorized Active=True/Enforced Healthy=False/InitializerUnauthorized")))
	g.Expect(recorder.Events).To(Receive(HavePrefix("Normal Enforced ")))
	g.Expect(recorder.Events).To(Receive(HavePrefix("Warning InitializerUnhealthy ")))
	g.Expect(result.RequeueAfter).To(Equal(initializerhealth.Interval))
}
