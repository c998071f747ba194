// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	_ "embed"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

//go:embed testdata/template.yaml
var template []byte

var (
	// cluster is shared by all specs.
	cluster *framework.Cluster
	options *hold.Options
	files   *controlplane.Authorization
	// requester and other may create and view Namespaces, and nothing else.
	requester, other *framework.User
)

func TestAuthorization(t *testing.T) { framework.RunSuite(t, "Authorization") }

var _ = BeforeSuite(func(ctx context.Context) {
	framework.ExpectNoLeaks()
	var err error
	files, err = controlplane.NewAuthorization(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	cluster = framework.Start(ctx, controlplane.WithAuthorization(files))
	Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
	namespaces := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "list", "watch"},
	}
	requester = cluster.AddUserWithRules(ctx, "user1@corp.example.com", namespaces)
	other = cluster.AddUserWithRules(ctx, "user2@corp.example.com", namespaces)
	options = cluster.StartHoldingManager(ctx)
	cluster.AddTemplateAccount(ctx, "administrators")
	administrators := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict(template, administrators)).To(Succeed())
	cluster.CreateTemplate(ctx, administrators)
	// Templates come last, so that their permissions do not precede the end of the initialization by long.
	cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("order").
		Initializer(framework.Absent, v1alpha1.InitializerSettings{
			NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{absentLabel: ""}},
		}).Initializers(v1alpha1.TemplatesInitializer))
}, NodeTimeout(15*time.Minute))

// enable makes the API server ask the webhook of the manager.
func enable(ctx context.Context, changes ...*strings.Replacer) {
	GinkgoHelper()
	Expect(cluster.EnableAuthorization(ctx, files, options.URL, changes...)).To(Succeed())
}

// createInitializing creates a namespace that is initializing until finish is called.
func createInitializing(ctx context.Context, user *framework.User) string {
	GinkgoHelper()
	name := framework.Unique("shop")
	user.Creates(ctx, makeInitializing(name))
	return name
}

// absentLabel selects namespaces that wait for framework.Absent.
const absentLabel = "test.example.com/absent"

func makeInitializing(name string) *corev1.Namespace {
	return wrappers.MakeNamespace(name).Label(absentLabel, "").Obj()
}

// finish lets the operator apply the template, which completes the initialization.
func finish(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(framework.PendingOf(cluster.GetNamespace(Default, ctx, name))).To(
		Equal(framework.Absent + "," + v1alpha1.TemplatesInitializer))
	cluster.Finish(ctx, name)
}

// result is the response to a request.
type result struct {
	Err      error
	Duration time.Duration
}

// create creates a ConfigMap, with the retries of client-go: a write can be held after its authorization, too.
func create(ctx context.Context, user *framework.User, namespace string) result {
	start := time.Now()
	err := user.Clientset().CoreV1().RESTClient().Post().Namespace(namespace).Resource("configmaps").
		Body(wrappers.MakeConfigMap(namespace, framework.Unique("web"))).Do(ctx).Error()
	return result{Err: err, Duration: time.Since(start)}
}

// expectHeld creates an initializing namespace as a user, and sends a request to it, to which the API server must not
// respond immediately. It returns the error of the response after a function has ended the initialization. On a busy
// machine, this can take longer than the time limit of the request, so that it is repeated.
func expectHeld(
	ctx context.Context, user *framework.User,
	request func(namespace string) result, end func(ctx context.Context, namespace string),
) error {
	GinkgoHelper()
	var got result
	Eventually(func() time.Duration {
		namespace := createInitializing(ctx, user)
		done := make(chan result, 1)
		go func() { done <- request(namespace) }()
		Consistently(done).WithContext(ctx).ShouldNot(Receive())
		end(ctx, namespace)
		Eventually(done).WithContext(ctx).Should(Receive(&got))
		return got.Duration
	}).WithContext(ctx).Should(BeNumerically("<", options.Duration))
	return got.Err
}

// createAs returns create for a user.
func createAs(ctx context.Context, user *framework.User) func(namespace string) result {
	return func(namespace string) result { return create(ctx, user, namespace) }
}
