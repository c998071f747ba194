// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// conditionTypes are the types of the conditions that finalization sets.
var conditionTypes = []corev1.NamespaceConditionType{
	corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
	corev1.NamespaceDeletionContentFailure, corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining,
}

// stopManager stops the shared manager until the spec ends.
func stopManager() {
	GinkgoHelper()
	Expect(manager.Stop()).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		restarted, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		manager = restarted
	})
}

// startManager runs a manager with the finalization controller until the spec ends.
func startManager(
	ctx context.Context, config *rest.Config, changes ...func(*nsmanager.Options),
) *controlplane.Manager {
	GinkgoHelper()
	started, err := controlplane.RunManager(ctx, config, append([]func(*nsmanager.Options){finalizationOnly}, changes...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(started.Stop()).To(Succeed()) })
	return started
}

func finalizationOnly(options *nsmanager.Options) {
	options.Controllers = nsmanager.Controllers{nsmanager.Finalization: true}
}

func withNamespaceFinalizer(finalizer corev1.FinalizerName) func(*nsmanager.Options) {
	return func(options *nsmanager.Options) { options.FinalizerToken = finalizer }
}

func withGracePeriod(duration time.Duration) func(*nsmanager.Options) {
	return func(options *nsmanager.Options) {
		options.SettlingTime = finalization.GracePeriod{Fixed: &duration}
	}
}

// managerConfig returns a client configuration for the manager's ServiceAccount.
func managerConfig(ctx context.Context) *rest.Config {
	GinkgoHelper()
	return configOf(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount, corev1.FinalizerKubernetes)
}

// serviceAccountConfig returns a client configuration for a new ServiceAccount with the manager's permissions for
// finalization, and with a ClusterRole content of its own.
func serviceAccountConfig(ctx context.Context, name string, finalizer corev1.FinalizerName) *rest.Config {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: name + "-controller-manager",
	}}
	content := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-content"}}
	keeper := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-keeper"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{content.Name},
		Verbs: []string{"get", "update", "escalate"},
	}}}
	objects := []client.Object{account, content, keeper}
	for _, role := range []string{content.Name, keeper.Name, "nslifecycle-finalization-role"} {
		objects = append(objects, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name,
			}},
		})
	}
	create(ctx, objects...)
	DeferCleanup(func(ctx context.Context) {
		for _, object := range objects {
			deleteObject(ctx, object)
		}
	})
	return configOf(ctx, account.Namespace, account.Name, finalizer)
}

// configOf returns a client configuration for a ServiceAccount of a manager, which removes a namespace finalizer.
func configOf(ctx context.Context, namespace, name string, finalizer corev1.FinalizerName) *rest.Config {
	GinkgoHelper()
	config, err := plane.ServiceAccountConfig(ctx, namespace, name)
	Expect(err).NotTo(HaveOccurred())
	cluster.Observation.Rules.Managers["system:serviceaccount:"+namespace+":"+name] = []corev1.FinalizerName{finalizer}
	return config
}

// useDedicatedControlPlane makes the spec use a new control plane without this project.
func useDedicatedControlPlane(ctx context.Context, options ...controlplane.Option) {
	GinkgoHelper()
	shared, sharedManager, sharedMetadata := cluster, manager, metadataClient
	DeferCleanup(func() {
		cluster, plane, admin = shared, shared.ControlPlane, shared.Admin
		manager, metadataClient = sharedManager, sharedMetadata
	})
	cluster, manager = framework.StartControlPlane(ctx, options...), nil
	cluster.StartObserver(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	var err error
	metadataClient, err = metadata.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
}

// finalize replaces spec.finalizers of a namespace.
func finalize(ctx context.Context, name string, finalizers ...corev1.FinalizerName) {
	GinkgoHelper()
	Eventually(func() error {
		namespace := &corev1.Namespace{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
			return client.IgnoreNotFound(err)
		}
		namespace.Spec.Finalizers = finalizers
		return client.IgnoreNotFound(admin.SubResource("finalize").Update(ctx, namespace))
	}).WithContext(ctx).Should(Succeed())
}

// HaveNamespaceFinalizers matches a namespace with exactly the given namespace finalizers, in the
// given order.
func HaveNamespaceFinalizers(finalizers ...corev1.FinalizerName) types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) []corev1.FinalizerName {
		return append([]corev1.FinalizerName{}, namespace.Spec.Finalizers...)
	}, Equal(append([]corev1.FinalizerName{}, finalizers...)))
}

// BeTerminating matches a namespace with a deletionTimestamp and the phase Terminating.
func BeTerminating() types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) string {
		return fmt.Sprintf("deleted=%t phase=%s", namespace.DeletionTimestamp != nil, namespace.Status.Phase)
	}, Equal("deleted=true phase=Terminating"))
}

// BeActive matches a namespace with the phase Active and no deletionTimestamp.
func BeActive() types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) string {
		return fmt.Sprintf("deleted=%t phase=%s", namespace.DeletionTimestamp != nil, namespace.Status.Phase)
	}, Equal("deleted=false phase=Active"))
}

// HaveContentRemoved matches a namespace whose conditions report that it is empty.
func HaveContentRemoved() types.GomegaMatcher {
	return And(
		HaveCondition(corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionFalse, "ResourcesDiscovered"),
		HaveCondition(corev1.NamespaceDeletionGVParsingFailure, corev1.ConditionFalse, "ParsedGroupVersions"),
		HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionFalse, "ContentDeleted"),
		HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionFalse, "ContentRemoved"),
		HaveCondition(corev1.NamespaceFinalizersRemaining, corev1.ConditionFalse, "ContentHasNoFinalizers"),
	)
}

// HaveNoFinalizationConditions matches a namespace without finalization conditions.
func HaveNoFinalizationConditions() types.GomegaMatcher {
	return WithTransform(func(namespace *corev1.Namespace) []corev1.NamespaceConditionType {
		found := []corev1.NamespaceConditionType{}
		for _, condition := range namespace.Status.Conditions {
			if slices.Contains(conditionTypes, condition.Type) {
				found = append(found, condition.Type)
			}
		}
		return found
	}, BeEmpty())
}

// eventuallyNamespace waits until a namespace matches.
func eventuallyNamespace(ctx context.Context, name string, matchers ...types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(g, ctx, name)).To(And(matchers...))
	}).WithContext(ctx).Should(Succeed())
}

// consistentlyNamespace checks that a namespace continues to match.
func consistentlyNamespace(ctx context.Context, name string, matchers ...types.GomegaMatcher) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		g.Expect(get(g, ctx, name)).To(And(matchers...))
	}).WithContext(ctx).Should(Succeed())
}

// captureLog captures the log of this process until the spec ends.
func captureLog() *gbytes.Buffer {
	buffer := gbytes.NewBuffer()
	GinkgoWriter.TeeTo(buffer)
	DeferCleanup(GinkgoWriter.ClearTeeWriters)
	return buffer
}

// exchange is a request from a manager and the function that sends it.
type exchange struct {
	*http.Request
	send func(*http.Request) (*http.Response, error)
}

// isWrite reports whether a request can change an object.
func isWrite(request *http.Request) bool {
	return request.Method != http.MethodGet && request.Method != http.MethodHead
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// intercept returns a configuration that passes each request to handle.
func intercept(config *rest.Config, handle func(exchange) (*http.Response, error)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			return handle(exchange{Request: request, send: next.RoundTrip})
		})
	})
	return config
}

// errorResponse returns an error response in the API server's format.
func errorResponse(request *http.Request, status int, reason metav1.StatusReason, message string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`,
		reason, message, status)
	return jsonResponse(request, status, []byte(body))
}

func jsonResponse(request *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// requestRecorder records the write requests from a manager.
type requestRecorder struct {
	lock     sync.Mutex
	requests map[string]int
}

func (w *requestRecorder) record(config *rest.Config) *rest.Config {
	return intercept(config, func(e exchange) (*http.Response, error) {
		if isWrite(e.Request) {
			w.lock.Lock()
			if w.requests == nil {
				w.requests = map[string]int{}
			}
			w.requests[e.Method+" "+e.URL.Path]++
			w.lock.Unlock()
		}
		return e.send(e.Request)
	})
}

// matching returns the write requests whose path contains text. Each request is followed by its
// count.
func (w *requestRecorder) matching(text string) []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	found := []string{}
	for _, request := range slices.Sorted(maps.Keys(w.requests)) {
		if strings.Contains(request, text) {
			found = append(found, fmt.Sprintf("%s (%d)", request, w.requests[request]))
		}
	}
	return found
}

// requestBlocker blocks a manager's matching requests until unblock is closed.
type requestBlocker struct {
	matches func(*http.Request) bool
	// afterResponse makes the blocker block responses instead of requests.
	afterResponse bool
	arrived       chan struct{}
	unblock       chan struct{}
	first         sync.Once
	lock          sync.Mutex
	statuses      []int
}

func newRequestBlocker(matches func(*http.Request) bool) *requestBlocker {
	return &requestBlocker{matches: matches, arrived: make(chan struct{}), unblock: make(chan struct{})}
}

func (b *requestBlocker) wrap(config *rest.Config) *rest.Config {
	return intercept(config, func(e exchange) (*http.Response, error) {
		if !b.matches(e.Request) {
			return e.send(e.Request)
		}
		if !b.afterResponse {
			if err := b.wait(e.Context()); err != nil {
				return nil, err
			}
		}
		response, err := e.send(e.Request)
		if err == nil && b.afterResponse {
			if err := b.wait(e.Context()); err != nil {
				response.Body.Close()
				return nil, err
			}
		}
		if err == nil {
			b.lock.Lock()
			b.statuses = append(b.statuses, response.StatusCode)
			b.lock.Unlock()
		}
		return response, err
	})
}

func (b *requestBlocker) wait(ctx context.Context) error {
	b.first.Do(func() { close(b.arrived) })
	select {
	case <-b.unblock:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// responses returns the status codes of the responses to the matching requests.
func (b *requestBlocker) responses() []int {
	b.lock.Lock()
	defer b.lock.Unlock()
	return slices.Clone(b.statuses)
}

// faultInjector makes requests from a manager fail while it is enabled.
type faultInjector struct {
	enabled  atomic.Bool
	injected atomic.Int32
	respond  func(exchange) (*http.Response, error) // If it returns nil, nil, the request is sent.
}

func (f *faultInjector) inject(config *rest.Config) *rest.Config {
	return intercept(config, func(e exchange) (*http.Response, error) {
		if f.enabled.Load() {
			if response, err := f.respond(e); response != nil || err != nil {
				f.injected.Add(1)
				return response, err
			}
		}
		return e.send(e.Request)
	})
}

// namespaceFinalizers returns the successive values of spec.finalizers.
func namespaceFinalizers(states []*corev1.Namespace) []string {
	lists := []string{}
	for _, state := range states {
		list := fmt.Sprint(state.Spec.Finalizers)
		if len(lists) == 0 || lists[len(lists)-1] != list {
			lists = append(lists, list)
		}
	}
	return lists
}

// makeConfigMaps returns ConfigMaps with the given names.
func makeConfigMaps(namespace string, names ...string) []client.Object {
	objects := make([]client.Object, 0, len(names))
	for _, name := range names {
		objects = append(objects, wrappers.MakeConfigMap(namespace, name))
	}
	return objects
}

// createAgain waits until a namespace is deleted, creates a namespace with the same name, and waits until the API
// server accepts objects in it.
func createAgain(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(name).Obj()
	Eventually(func() error { return admin.Create(ctx, namespace) }).WithContext(ctx).Should(Succeed())
	Eventually(func() error {
		return admin.Create(ctx, wrappers.MakeConfigMap(name, "probe"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
	return namespace
}

// removeAll deletes the objects of a type regardless of their finalizers.
func removeAll(ctx context.Context, gvr schema.GroupVersionResource, namespace string) {
	GinkgoHelper()
	objects := metadataClient.Resource(gvr).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, object := range list.Items {
		if len(object.Finalizers) > 0 {
			_, err := objects.Patch(ctx, object.Name, "application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			Expect(client.IgnoreNotFound(err)).To(Succeed())
		}
		err := objects.Delete(ctx, object.Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	Expect(countOf(Default, ctx, gvr, namespace)).To(BeZero())
}
