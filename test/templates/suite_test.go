// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	alice = "alice"
	// account is the ServiceAccount of the templates.
	account = "template-account"
)

//go:embed testdata/team.yaml
var teamTemplate []byte

var (
	// cluster is shared by all specs.
	cluster           *framework.Cluster
	controllerManager *controlplane.ControllerManager
	// creator can create, get, update and delete Namespaces, and nothing else.
	creator *framework.User
)

func TestTemplates(t *testing.T) {
	framework.RunSuite(t, "Templates")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	cluster = framework.Start(ctx)
	cluster.StartObserver(ctx)
	cluster.Install(ctx, "default")
	creator = cluster.AddUserWithRules(ctx, alice, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "update", "patch", "delete"},
	})
	cluster.Admin.Creates(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "edit-configmaps"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "get", "update", "delete"},
		}},
	})
	cluster.AddTemplateAccount(ctx, account)
	cluster.StartManager(ctx)
	startControllerManager(ctx)
	DeferCleanup(func() error { return controllerManager.Stop() })
	waitForTemplates(ctx)
}, NodeTimeout(15*time.Minute))

// startControllerManager starts the controller that counts quotas.
func startControllerManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	controllerManager, err = cluster.StartControllerManager(ctx, "--controllers=resourcequota-controller")
	Expect(err).NotTo(HaveOccurred())
}

// waitForTemplates waits until the API server recognizes the parameter kind of the policies for
// templates.
func waitForTemplates(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return cluster.Admin.Create(ctx, newTemplate("probe"), client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
}

// newTemplate returns the template in testdata with another name, which selects Namespaces by the label
// "kind" with the name as its value.
func newTemplate(name string, changes ...func(*v1alpha1.NamespaceTemplateSpec)) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	template := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict(teamTemplate, template)).To(Succeed())
	template.Name = name
	template.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"kind": v1alpha1.LabelValue(name)}
	for _, change := range changes {
		change(&template.Spec)
	}
	return template
}

// create creates a template until the spec ends.
func create(ctx context.Context, template *v1alpha1.NamespaceTemplate) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) {
		// Otherwise, the operator would continue to prune objects while other specs count its requests.
		Expect(client.IgnoreNotFound(cluster.Admin.Patch(ctx, template, framework.MergePatch(
			`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	})
	cluster.CreateTemplate(ctx, template)
}

// selectedBy returns a Namespace that the template selects.
func selectedBy(template string) *corev1.Namespace {
	return wrappers.MakeNamespace(framework.Unique("ns")).Label("kind", template).Obj()
}

// createTemplate creates a template with a unique name. See create.
func createTemplate(
	ctx context.Context, prefix string, changes ...func(*v1alpha1.NamespaceTemplateSpec),
) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	template := newTemplate(framework.Unique(prefix), changes...)
	create(ctx, template)
	return template
}

// createSelecting creates a template, and an initialized Namespace that it selects.
func createSelecting(
	ctx context.Context, prefix string, changes ...func(*v1alpha1.NamespaceTemplateSpec),
) (*v1alpha1.NamespaceTemplate, *corev1.Namespace) {
	GinkgoHelper()
	template := createTemplate(ctx, prefix, changes...)
	return template, createInitialized(ctx, selectedBy(template.Name))
}

// createInitialized creates a Namespace as alice, and waits until it is initialized.
func createInitialized(ctx context.Context, namespace *corev1.Namespace) *corev1.Namespace {
	GinkgoHelper()
	return createInitializedAs(ctx, creator, namespace)
}

func createInitializedAs(ctx context.Context, user *framework.User, namespace *corev1.Namespace) *corev1.Namespace {
	GinkgoHelper()
	expectInitialized(ctx, framework.CreateAs(ctx, user, namespace))
	return namespace
}

func expectInitialized(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		g.Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing), "%v", namespace.Status.Conditions)
	}).WithContext(ctx).Should(Succeed())
}

func getTemplate(g Gomega, ctx context.Context, name string) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{}
	g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, template)).To(Succeed())
	return template
}

// getConfig returns a ConfigMap in a Namespace.
func getConfig(ctx context.Context, namespace *corev1.Namespace, name string) *corev1.ConfigMap {
	GinkgoHelper()
	return get(ctx, namespace, name, &corev1.ConfigMap{})
}

// valueIn returns the value in a ConfigMap.
func valueIn(ctx context.Context, namespace *corev1.Namespace, name string) string {
	return getConfig(ctx, namespace, name).Data["key"]
}

// newConfig returns a ConfigMap with one key.
func newConfig(namespace, name, value string) *corev1.ConfigMap {
	object := wrappers.MakeConfigMap(namespace, name)
	object.Data = map[string]string{"key": value}
	return object
}

// expectCondition waits until a template has a condition for its current generation.
func expectCondition(
	ctx context.Context, template, conditionType string, status metav1.ConditionStatus, message ...string,
) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := getTemplate(g, ctx, template)
		condition := meta.FindStatusCondition(current.Status.Conditions, conditionType)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.ObservedGeneration).To(Equal(current.Generation))
		g.Expect(condition.Status).To(Equal(status), "%+v", current.Status)
		for _, part := range message {
			g.Expect(condition.Message).To(ContainSubstring(part))
		}
	}).WithContext(ctx).Should(Succeed())
}

// get returns an object in a Namespace.
func get[T client.Object](ctx context.Context, namespace *corev1.Namespace, name string, object T) T {
	GinkgoHelper()
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: name}, object)).To(Succeed())
	return object
}

// expectEvents waits for an Event about a Namespace, and expects that the operator does not repeat it.
func expectEvents(ctx context.Context, namespace *corev1.Namespace, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(cluster.Admin.List(ctx, &events)).To(Succeed())
		count := 0
		for _, event := range events.Items {
			if event.Reason == reason && event.Regarding.UID == namespace.UID {
				count++
			}
		}
		g.Expect(count).To(Equal(1))
	}).WithContext(ctx).Should(Succeed())
}

// fault is what happens to a request of the operator.
type fault int

const (
	noFault fault = iota
	// notSent: the API server does not get the request.
	notSent
	// notAnswered: the API server handles the request, and the operator does not get the response.
	notAnswered
)

var errInterrupted = errors.New("the test has interrupted the request")

// interceptor intercepts the requests of a manager.
type interceptor struct {
	mutex    sync.Mutex
	onSend   func(*http.Request) fault
	requests []string
	// paused is part of the path of the watches that do not get events until resumed is closed.
	paused  string
	resumed chan struct{}
}

// restartManager replaces the manager by one whose requests are intercepted. The container must call
// restoreManager after each spec.
func restartManager(
	ctx context.Context, onSend func(*http.Request) fault, changes ...func(*manager.Options),
) *interceptor {
	GinkgoHelper()
	cluster.StopManager()
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	i := &interceptor{onSend: onSend}
	cluster.Manager, err = cluster.StartManagerAs(ctx, framework.Intercept(config, i.roundTrip), changes...)
	Expect(err).NotTo(HaveOccurred())
	return i
}

func restoreManager(ctx context.Context) {
	GinkgoHelper()
	cluster.StopManager()
	cluster.StartManager(ctx)
}

// set replaces the function that is called before each request.
func (i *interceptor) set(onSend func(*http.Request) fault) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.onSend = onSend
}

// sent returns the requests since the last call, each as its method and URI.
func (i *interceptor) sent() []string {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	requests := i.requests
	i.requests = nil
	return requests
}

// pause holds the events of the watches of a resource until the returned function is called.
func (i *interceptor) pause(resource string) (resume func()) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	resumed := make(chan struct{})
	i.paused, i.resumed = "/"+resource, resumed
	return sync.OnceFunc(func() {
		i.mutex.Lock()
		defer i.mutex.Unlock()
		i.paused = ""
		close(resumed)
	})
}

func (i *interceptor) roundTrip(exchange framework.Exchange) (*http.Response, error) {
	request := exchange.Request
	i.mutex.Lock()
	i.requests = append(i.requests, request.Method+" "+request.URL.RequestURI())
	onSend := i.onSend
	i.mutex.Unlock()
	happens := noFault
	if onSend != nil {
		happens = onSend(request)
	}
	if happens == notSent {
		return nil, errInterrupted
	}
	response, err := exchange.Send(request)
	if err != nil {
		return nil, err
	}
	if happens == notAnswered {
		return nil, errors.Join(errInterrupted, response.Body.Close())
	}
	if request.URL.Query().Get("watch") != "" {
		response.Body = &pausableBody{ReadCloser: response.Body, interceptor: i, request: request}
	}
	return response, nil
}

// pausableBody is the response to a watch.
type pausableBody struct {
	io.ReadCloser
	*interceptor
	request *http.Request
}

func (b *pausableBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mutex.Lock()
	isPaused, resumed := b.paused != "" && strings.HasSuffix(b.request.URL.Path, b.paused), b.resumed
	b.mutex.Unlock()
	if isPaused {
		select {
		case <-resumed:
		case <-b.request.Context().Done():
		}
	}
	return n, err
}

// isTemplateWrite reports whether a request changes an object in a Namespace, or the annotations of the
// Namespace.
func isTemplateWrite(request *http.Request, namespace string) bool {
	path := "/namespaces/" + namespace
	if request.Method == http.MethodGet || request.URL.Query().Get("dryRun") != "" {
		return false
	}
	return strings.Contains(request.URL.Path, path+"/") && !strings.HasSuffix(request.URL.Path, "/status") ||
		strings.HasSuffix(request.URL.Path, path+"/status") && contains(request, v1alpha1.AnnotationAppliedTemplates)
}

// contains reports whether the body of a request contains a text.
func contains(request *http.Request, text string) bool {
	body, err := request.GetBody()
	if err != nil {
		return false
	}
	content, err := io.ReadAll(body)
	return err == nil && strings.Contains(string(content), text)
}

// writes returns the requests that change objects: no reads, reviews, Events and dry runs. Namespaces of
// earlier specs can be terminating.
func writes(requests []string) []string {
	return slices.DeleteFunc(requests, func(request string) bool {
		return strings.HasPrefix(request, "GET ") || strings.Contains(request, "/apis/authorization.k8s.io/") ||
			strings.Contains(request, "/apis/authentication.k8s.io/") ||
			strings.Contains(request, "/apis/events.k8s.io/") || strings.Contains(request, "dryRun=All") ||
			strings.Contains(request, "/finalize?") || strings.Contains(request, "/mutatingadmissionpolicies/")
	})
}

// countContaining returns how many requests contain a text.
func countContaining(requests []string, text string) int {
	return len(slices.DeleteFunc(requests, func(request string) bool { return !strings.Contains(request, text) }))
}

// requestsSoFar returns the requests since the last call of sent.
func (i *interceptor) requestsSoFar() []string {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return slices.Clone(i.requests)
}
