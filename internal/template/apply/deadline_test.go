// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// live is what the API server returns.
type live struct {
	namespace *corev1.Namespace
	template  *v1alpha1.NamespaceTemplate
	quota     *corev1.ResourceQuota
}

func (l live) reader() client.Reader {
	builder := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(l.namespace, l.template).
		WithIndex(&corev1.ResourceQuota{}, metav1.ObjectNameField, func(object client.Object) []string {
			return []string{object.GetName()}
		})
	if l.quota != nil {
		builder.WithObjects(l.quota)
	}
	return builder.Build()
}

// Before a Namespace fails, the API server must confirm what the decision depends on.
func TestAwaitEffectiveIsConfirmed(t *testing.T) {
	for name, change := range map[string]func(*live){
		"":                     nil,
		"the quota is counted": func(l *live) { l.quota.Status.Hard = l.quota.Spec.Hard },
		"no quota":             func(l *live) { l.quota = nil },
		"another template":     func(l *live) { l.template.UID = "x" },
		"a changed template":   func(l *live) { l.template.Generation++ },
		"another namespace":    func(l *live) { l.namespace.UID = "x" },
		"a changed namespace":  func(l *live) { l.namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = "" },
	} {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
			namespace := namespaceWith("1", "")
			namespace.Annotations = map[string]string{v1alpha1.AnnotationPendingInitializers: v1alpha1.TemplatesInitializer}
			namespace.Annotations[v1alpha1.AnnotationTurnStartedAt] = initialization.FormatTurnStart(
				v1alpha1.TemplatesInitializer, now.Add(-time.Hour))
			tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "t", Generation: 3}}
			tmpl.Spec.Initialization = v1alpha1.TemplateInitialization{
				EffectiveTimeoutSeconds: ptr.To[int32](3), EffectiveTimeoutPolicy: v1alpha1.FailurePolicyFail,
			}
			server := live{namespace.DeepCopy(), tmpl.DeepCopy(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "quota"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
			}}
			server.namespace.ResourceVersion = ""
			if change != nil {
				change(&server)
			}
			p := &pass{
				Applier: &Applier{Live: server.reader(), Records: &Records{}}, Pass: plan.NewPass(&plan.Memory{}, namespace, nil, now),
			}
			p.Begin([]*v1alpha1.NamespaceTemplate{tmpl}, 0)
			selected := p.Add(tmpl)
			selected.Objects = []*plan.Object{{Name: "quota", Own: plan.Ownership{Current: &plan.Observed{}},
				Manifest: render.IdentityOfCopy(&v1alpha1.TemplateSourceReference{Kind: "ResourceQuota", Name: "quota"}, namespace.Name),
			}}
			g.Expect(p.awaitEffective(t.Context())).To(Succeed())
			result := p.Conclude(nil, nil, 0, now)
			g.Expect(result.Templates[0].Waiting).To(HaveLen(1))
			g.Expect(result.Refusal != nil).To(Equal(change == nil))
			if change != nil {
				g.Expect(result.RetryAfter).To(Equal(plan.UnconfirmedRetry))
			}
		})
	}
}

// The operator reads ServiceAccounts from a cache, which can be stale.
func TestConfirmProblem(t *testing.T) {
	namespace, tmpl := namespaceWith("1", ""), &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	tmpl.Spec.ServiceAccountName = "provisioner"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "provisioner"}}
	for name, test := range map[string]struct {
		reason      string
		exists      bool
		isConfirmed bool
	}{
		"no ServiceAccount":         {v1alpha1.ReasonServiceAccountNotFound, false, true},
		"a new ServiceAccount":      {v1alpha1.ReasonServiceAccountNotFound, true, false},
		"refused by the API server": {v1alpha1.ReasonForbidden, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(namespace.DeepCopy(), tmpl.DeepCopy()).
				WithIndex(&corev1.ServiceAccount{}, metav1.ObjectNameField, func(object client.Object) []string {
					return []string{object.GetName()}
				})
			if test.exists {
				builder.WithObjects(account.DeepCopy())
			}
			p := &pass{
				Applier: &Applier{Live: builder.Build(), Records: &Records{}, SystemNamespace: "system"},
				Pass:    plan.NewPass(&plan.Memory{}, namespace, nil, time.Now()),
			}
			err := p.confirmProblem(t.Context(), tmpl, template.Problem{Reason: test.reason})
			if test.isConfirmed {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			} else {
				NewWithT(t).Expect(err).To(MatchError(plan.ErrUnconfirmed))
			}
		})
	}
}
