// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis tests the diagnosis against a real API server and namespace controller. Each spec
// blocks the deletion or initialization of a namespace in one way. It expects a finding with the
// correct cause and objects, and no other cause at any time. It runs the recommended commands,
// resolves the cause, and expects that the namespace is then deleted or initialized.
package diagnosis

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// progressDeadline is short to keep the suite fast.
const progressDeadline = 2 * time.Second

var (
	// cluster has a manager that finalizes and diagnoses the namespaces.
	cluster *framework.Cluster
	// admin is a member of system:masters.
	admin *framework.User
	// collector has the permissions of admin.
	collector *collect.Collector
)

func TestDiagnosis(t *testing.T) {
	framework.RunSuite(t, "Diagnosis")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	startControlPlane(ctx)
	Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
	startManager(ctx)
})

// startControlPlane starts a control plane for the following specs.
func startControlPlane(ctx context.Context) {
	GinkgoHelper()
	cluster = framework.StartControlPlane(ctx)
	admin = framework.NewUser(cluster.Admin.Config, apiextensionsv1.AddToScheme)
	collector = newCollector(cluster.Admin.Config)
}

func startManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	cluster.StartManager(ctx, append([]func(*manager.Options){withProgressDeadline(progressDeadline)}, changes...)...)
}

// withProgressDeadline is an option of a manager.
func withProgressDeadline(deadline time.Duration) func(*manager.Options) {
	return func(options *manager.Options) { options.DiagnosisProgressDeadline = deadline }
}

func newCollector(config *rest.Config) *collect.Collector {
	GinkgoHelper()
	result, err := collect.New(config)
	Expect(err).NotTo(HaveOccurred())
	result.ProgressDeadline = progressDeadline
	return result
}

// testFinalizer has no owner in the cluster.
const testFinalizer = "test.example.org/hold"

// fixture contains the namespace and the objects of one spec. In manifests, $ns is replaced with the
// name of the namespace and $id with a unique identifier.
type fixture struct {
	ns, id string
}

// makeFixture returns a fixture without creating its namespace.
func makeFixture() *fixture {
	id := strings.ReplaceAll(framework.Unique("acme"), "-", "")
	return &fixture{ns: "diagnosis-" + id, id: id}
}

// newFixture creates a fixture with its namespace, which is force-deleted when the spec ends.
func newFixture(ctx context.Context) *fixture {
	GinkgoHelper()
	f := makeFixture()
	f.create(ctx, f.manifest())
	return f
}

func (f *fixture) manifest() string {
	return `{apiVersion: v1, kind: Namespace, metadata: {name: $ns}}`
}

func (f *fixture) text(text string) string {
	return strings.NewReplacer("$ns", f.ns, "$id", f.id).Replace(text)
}

func (f *fixture) texts(texts []string) []string {
	replaced := []string{}
	for _, text := range texts {
		replaced = append(replaced, f.text(text))
	}
	return replaced
}

// objects returns the objects in a manifest.
func (f *fixture) objects(text string) []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(f.text(text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		Expect(err).NotTo(HaveOccurred(), f.text(text))
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// create creates the objects of a manifest in order, including their status, and returns them. The
// objects are force-deleted when the spec ends.
func (f *fixture) create(ctx context.Context, text string) []*unstructured.Unstructured {
	GinkgoHelper()
	objects := f.objects(text)
	for _, object := range objects {
		status, hasStatus := object.Object["status"]
		Eventually(func() error {
			err := admin.Create(ctx, object)
			if err != nil && !isNotServedYet(err) {
				return StopTrying("failed to create the object").Wrap(err)
			}
			return err
		}).WithContext(ctx).Should(Succeed(), "%s %s", object.GetKind(), object.GetName())
		DeferCleanup(forceDelete, object.DeepCopy())
		if hasStatus {
			object.Object["status"] = status
			Expect(admin.Status().Update(ctx, object)).To(Succeed())
		}
	}
	return objects
}

// isNotServedYet reports whether the API server does not serve a type yet.
func isNotServedYet(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
}

// forceDelete removes the finalizers of an object and deletes it without a grace period.
func forceDelete(ctx context.Context, object *unstructured.Unstructured) {
	removeFinalizers(ctx, object)
	err := admin.Delete(ctx, object, client.GracePeriodSeconds(0))
	if meta.IsNoMatchError(err) {
		return
	}
	Expect(client.IgnoreNotFound(err)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	if object.GetKind() == "Namespace" {
		framework.SetNamespaceFinalizers(ctx, admin, object.GetName(), corev1.FinalizerKubernetes)
	}
}

// removeFinalizers removes all finalizers from an object if the object still exists.
func removeFinalizers(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(tryRemoveFinalizers(ctx, object)).To(Succeed(), "%s", object.GetName())
}

func tryRemoveFinalizers(ctx context.Context, object client.Object) error {
	patch := framework.MergePatch(`{"metadata":{"finalizers":null}}`)
	if err := admin.Patch(ctx, object, patch); !meta.IsNoMatchError(err) {
		return client.IgnoreNotFound(err)
	}
	return nil
}

// delete requests the deletion of the objects of a manifest.
func (f *fixture) delete(ctx context.Context, text string) {
	GinkgoHelper()
	for _, object := range f.objects(text) {
		Expect(admin.Delete(ctx, object)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
}

// deleteNamespace requests the deletion of the namespace. It waits until the namespace controller
// reports what holds up the deletion or has removed its finalizer. This can take longer than the
// progress deadline on a busy machine, even if the namespace is empty.
func (f *fixture) deleteNamespace(ctx context.Context) {
	GinkgoHelper()
	f.delete(ctx, f.manifest())
	Eventually(func(g Gomega) {
		namespace := f.namespace(g, ctx)
		isHeldUp := slices.ContainsFunc(namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
			return slices.Contains(diagnosis.DeletionConditions, condition.Type) && condition.Status == corev1.ConditionTrue
		})
		g.Expect(isHeldUp || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

func (f *fixture) namespace(g Gomega, ctx context.Context) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: f.ns}, namespace)).To(Succeed())
	return namespace
}

// eventually waits until the Namespace matches.
func (f *fixture) eventually(ctx context.Context, matcher types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(f.namespace(g, ctx)).To(matcher)
	}).WithContext(ctx).Should(Succeed())
}

// expectDeleted waits until the namespace no longer exists.
func (f *fixture) expectDeleted(ctx context.Context) {
	GinkgoHelper()
	framework.ExpectDeleted(ctx, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.ns}})
}

// expectTerminating waits until the objects of a manifest have a deletionTimestamp.
func (f *fixture) expectTerminating(ctx context.Context, text string) {
	GinkgoHelper()
	for _, object := range f.objects(text) {
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			g.Expect(object.GetDeletionTimestamp()).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
}
