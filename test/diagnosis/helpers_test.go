// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// testFinalizer is a finalizer that only the specs remove.
const testFinalizer = "hold.test-owner.dev/records"

// unique returns a name that no other spec in this process uses.
var unique = framework.Unique

// createNamespace creates a namespace with additional namespace finalizers. It does not delete the
// namespace after the spec, because no namespace controller runs.
func createNamespace(ctx context.Context, prefix string, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(unique(prefix)).Obj()
	namespace.Spec.Finalizers = finalizers
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	return namespace
}

func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			if len(object.GetFinalizers()) > 0 {
				removeFinalizers(ctx, object)
			}
			// The API server might still call a webhook or enforce a policy that the spec has
			// deleted.
			Eventually(func() error {
				return client.IgnoreNotFound(admin.Delete(ctx, object))
			}).WithContext(ctx).Should(Succeed())
		})
	}
}

func deleteObject(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(admin.Delete(ctx, object)).To(Succeed())
	}
}

// withFinalizer adds testFinalizer to an object before its creation.
func withFinalizer[T client.Object](object T) T {
	controllerutil.AddFinalizer(object, testFinalizer)
	return object
}

// removeFinalizers removes all finalizers from an object.
func removeFinalizers(ctx context.Context, object client.Object) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	copied := object.DeepCopyObject().(client.Object)
	Expect(client.IgnoreNotFound(admin.Patch(ctx, copied, patch))).To(Succeed())
}

// collectFacts collects the facts about a namespace with the permissions of config. If
// progressDeadline is zero, the diagnosis reports causes immediately.
func collectFacts(ctx context.Context, config *rest.Config, name string, progressDeadline time.Duration) *diagnosis.Facts {
	GinkgoHelper()
	collector, err := collect.New(config)
	Expect(err).NotTo(HaveOccurred())
	collector.ProgressDeadline = progressDeadline
	facts, err := collector.Collect(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	return facts
}

// diagnose diagnoses a namespace without a progress deadline.
func diagnose(ctx context.Context, name string) *diagnosis.Diagnosis {
	GinkgoHelper()
	result := rules.Diagnose(collectFacts(ctx, plane.Admin, name, 0))
	text, err := json.MarshalIndent(result, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("diagnosis of "+name, string(text))
	return result
}

// causesOf returns the causes of a diagnosis. It omits CauseNamespaceControllerUnresponsive, because no
// namespace controller runs.
func causesOf(result *diagnosis.Diagnosis) []diagnosis.Cause {
	var causes []diagnosis.Cause
	for _, finding := range result.Findings {
		if finding.Cause != diagnosis.CauseNamespaceControllerUnresponsive {
			causes = append(causes, finding.Cause)
		}
	}
	return causes
}

// findingOf returns the finding with the given cause, and fails the spec if there is none.
func findingOf(result *diagnosis.Diagnosis, cause diagnosis.Cause) diagnosis.Finding {
	GinkgoHelper()
	for _, finding := range result.Findings {
		if finding.Cause == cause {
			return finding
		}
	}
	Fail(fmt.Sprintf("no finding with cause %s: %v", cause, result.Findings))
	return diagnosis.Finding{}
}

// customType is a custom resource type.
type customType struct{ group, plural string }

func makeCustomType() customType {
	return customType{group: unique("g") + ".custom.test-owner.dev", plural: "widgets"}
}

func (t customType) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.group, Version: "v1", Resource: t.plural}
}

func (t customType) String() string { return t.plural + "." + t.group }

// definition returns the CustomResourceDefinition.
func (t customType) definition() *unstructured.Unstructured {
	text := strings.NewReplacer("GROUP", t.group, "PLURAL", t.plural).Replace(`{
		"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"PLURAL.GROUP"},
		"spec":{"group":"GROUP","scope":"Namespaced","names":{"plural":"PLURAL","singular":"widget","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	return fromJSON(text)
}

func (t customType) object(namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(t.resource().GroupVersion().WithKind("Widget"))
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// createCustomType creates a CustomResourceDefinition, and waits until the API server serves its type.
// The CustomResourceDefinition is deleted when the spec ends.
func createCustomType(ctx context.Context) customType {
	GinkgoHelper()
	custom := makeCustomType()
	create(ctx, custom.definition())
	custom.expectServed(ctx)
	return custom
}

func (t customType) expectServed(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := dynamicClient.Resource(t.resource()).Namespace("default").Create(ctx, t.object("default", "probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).WithContext(ctx).Should(Succeed())
}

// createCustom creates an object of the type, which is deleted when the spec ends.
func createCustom(ctx context.Context, custom customType, object *unstructured.Unstructured) {
	GinkgoHelper()
	resource := dynamicClient.Resource(custom.resource()).Namespace(object.GetNamespace())
	_, err := resource.Create(ctx, object, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := resource.Patch(ctx, object.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{})
		if err == nil {
			err = resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		}
		if !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
		}
	})
}

func fromJSON(text string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(object.UnmarshalJSON([]byte(text))).To(Succeed())
	return object
}
