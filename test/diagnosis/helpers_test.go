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

// testFinalizer is one that nobody but the spec itself takes off.
const testFinalizer = "hold.test-owner.dev/records"

// unique returns a name that no other spec of this process uses.
var unique = framework.Unique

// createNamespace creates a namespace with more tokens than its own. It is left behind:
// nobody ends namespaces here.
func createNamespace(ctx context.Context, prefix string, tokens ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(unique(prefix)).Obj()
	namespace.Spec.Finalizers = tokens
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	return namespace
}

func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			if len(object.GetFinalizers()) > 0 {
				release(ctx, object)
			}
			// Until the API server has noticed that the policy or webhook of the spec is gone.
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

// hold puts the test's finalizer on an object before it is created.
func hold[T client.Object](object T) T {
	controllerutil.AddFinalizer(object, testFinalizer)
	return object
}

// release takes all finalizers off an object.
func release(ctx context.Context, object client.Object) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	copied := object.DeepCopyObject().(client.Object)
	Expect(client.IgnoreNotFound(admin.Patch(ctx, copied, patch))).To(Succeed())
}

// gather reads the facts about a namespace as a user, whose patience is given: none blames
// at once what would be blamed later.
func gather(ctx context.Context, config *rest.Config, name string, patience time.Duration) *diagnosis.Facts {
	GinkgoHelper()
	gatherer, err := collect.New(config)
	Expect(err).NotTo(HaveOccurred())
	gatherer.ProgressDeadline = patience
	facts, err := gatherer.Collect(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	return facts
}

// diagnose computes what is wrong with a namespace, without any patience.
func diagnose(ctx context.Context, name string) *diagnosis.Diagnosis {
	GinkgoHelper()
	result := rules.Diagnose(gather(ctx, plane.Admin, name, 0))
	text, err := json.MarshalIndent(result, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("diagnosis of "+name, string(text))
	return result
}

// causesOf returns the causes of a diagnosis but for the namespace controller's, which does
// not run here.
func causesOf(result *diagnosis.Diagnosis) []diagnosis.Cause {
	var causes []diagnosis.Cause
	for _, finding := range result.Findings {
		if finding.Cause != diagnosis.CauseNamespaceControllerUnresponsive {
			causes = append(causes, finding.Cause)
		}
	}
	return causes
}

// findingOf returns the finding of a cause; the spec fails if there is none.
func findingOf(result *diagnosis.Diagnosis, cause diagnosis.Cause) diagnosis.Finding {
	GinkgoHelper()
	for _, finding := range result.Findings {
		if finding.Cause == cause {
			return finding
		}
	}
	Fail(fmt.Sprintf("no finding %s among %v", cause, result.Findings))
	return diagnosis.Finding{}
}

// customType is a type of custom resources.
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

// createCustomType creates a CustomResourceDefinition, which goes at the end of the spec,
// and waits until its objects can be created.
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

// createCustom creates an object of the type, which goes at the end of the spec.
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
