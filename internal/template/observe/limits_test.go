// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// limited returns a template that permits a user a number of Namespaces.
func limited(name string, limit int32) *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NamespaceTemplateSpec{MaxNamespacesPerUser: ptr.To(limit)},
	}
}

// created returns an initialized Namespace that alice has created with the template "team".
func created(name string, changes ...func(*corev1.Namespace)) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.LabelTemplate: "team"},
		Annotations: map[string]string{
			v1alpha1.AnnotationRequestedBy:       "alice",
			v1alpha1.AnnotationInitializers:      v1alpha1.TemplatesInitializer + ",b.example.com",
			v1alpha1.AnnotationSelectedTemplates: "base,team",
		},
	}}
	for _, change := range changes {
		change(namespace)
	}
	return namespace
}

// initializing makes a Namespace wait for its templates.
func initializing(namespace *corev1.Namespace) {
	namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = namespace.Annotations[v1alpha1.AnnotationInitializers]
}

func reader(namespaces ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(namespaces...).Build()
}

func TestLimitsAdmit(t *testing.T) {
	g := NewWithT(t)
	first, second, third := created("a", initializing), created("b", initializing), created("c", initializing)
	cached := reader(first, second, third)
	// Only those with which the Namespaces were created limit them.
	templates := []v1alpha1.NamespaceTemplate{
		*limited("team", 2), {ObjectMeta: metav1.ObjectMeta{Name: "base"}}, *limited("another", 0),
	}
	l := Limits{Namespaces: cached, Live: cached}
	admit := func(namespace *corev1.Namespace) string {
		refusal, err := l.admit(t.Context(), namespace, templates)
		g.Expect(err).NotTo(HaveOccurred())
		return ptr.Deref(refusal, metav1.Status{}).Message
	}
	g.Expect(admit(first)).To(BeEmpty())
	g.Expect(admit(second)).To(BeEmpty())
	g.Expect(admit(third)).To(ContainSubstring(`user "alice" has 2 namespaces with template "team", which permits 2`))
	templates[0].Spec.MaxNamespacesPerUser = ptr.To(int32(1))
	g.Expect(admit(first)).To(BeEmpty(), "an admitted Namespace stays admitted")
	templates[0].Spec.MaxNamespacesPerUser = ptr.To(int32(2))
	g.Expect(cached.Delete(t.Context(), second)).To(Succeed())
	g.Expect(admit(third)).To(BeEmpty())
	delete(first.Annotations, v1alpha1.AnnotationRequestedBy)
	g.Expect(admit(first)).To(BeEmpty(), "a Namespace without a known creator")
}

func TestLimitsWaitForTheCache(t *testing.T) {
	tests := map[string]struct {
		cached, live []client.Object
		isSynced     bool
	}{
		"equal":                               {cached: []client.Object{created("a")}, live: []client.Object{created("a")}, isSynced: true},
		"the Namespace is missing":            {live: []client.Object{created("a")}},
		"the Namespace was recreated":         {cached: []client.Object{created("a", func(n *corev1.Namespace) { n.UID = "x" })}, live: []client.Object{created("a")}},
		"the Namespace is not initialized":    {cached: []client.Object{created("a", initializing)}, live: []client.Object{created("a")}},
		"a new Namespace is missing":          {live: []client.Object{created("a", initializing)}, isSynced: true},
		"the Namespace was deleted":           {cached: []client.Object{created("a")}, isSynced: true},
		"the cached Namespace is initialized": {cached: []client.Object{created("a")}, live: []client.Object{created("a", initializing)}, isSynced: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := Limits{Namespaces: reader(test.cached...), Live: reader(test.live...)}
			namespace := created("new", initializing)
			_, err := l.admit(t.Context(), namespace, []v1alpha1.NamespaceTemplate{*limited("team", 5)})
			g.Expect(errors.Is(err, template.ErrNotSynced)).To(Equal(!test.isSynced), "%v", err)
		})
	}
}
