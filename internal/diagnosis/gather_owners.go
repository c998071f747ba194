// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

// mostPods is how many running pods of the cluster are looked at.
const mostPods = 10000

// readOwners reads what could tell who should act. It is asked for only where somebody is
// going to be blamed.
func (g *gathering) readOwners(ctx context.Context) {
	if !g.facts.isOverdue(g.facts.Namespace.DeletionTimestamp.Time) {
		return
	}
	reads := []func(){func() { g.readLeases(ctx) }}
	if len(g.facts.strangers()) > 0 {
		reads = append(reads,
			func() { g.readDeployments(ctx) },
			func() { g.readStatefulSets(ctx) },
			func() { g.readDaemonSets(ctx) },
			func() { g.readRunningPods(ctx) },
			func() { g.readBindings(ctx) },
		)
	}
	sideBySide(reads...)
	g.note(func(facts *Facts) {
		slices.SortFunc(facts.Workloads, func(a, b Workload) int {
			return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Namespace, b.Namespace),
				cmp.Compare(a.Name, b.Name))
		})
	})
}

// ownerNamespace returns the namespace in which owners are looked for; empty for all namespaces.
func (g *gathering) ownerNamespace() string { return g.facts.unlessPublic("", g.facts.Namespace.Name) }

// readLeases skips the Leases of nodes: there are thousands, and none belongs to an owner.
func (g *gathering) readLeases(ctx context.Context) {
	list := &coordinationv1.LeaseList{}
	notOfNodes := fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease)
	if g.list(ctx, SourceLeases, list, client.MatchingFieldsSelector{Selector: notOfNodes}) {
		g.note(func(facts *Facts) {
			facts.Leases = slices.DeleteFunc(list.Items, func(lease coordinationv1.Lease) bool {
				return !facts.mayName(lease.Namespace) && !isOfControlPlane(&lease)
			})
		})
	}
}

func (g *gathering) readDeployments(ctx context.Context) {
	list := &appsv1.DeploymentList{}
	if g.list(ctx, SourceDeployments, list, inNamespace(g.ownerNamespace())) {
		noteWorkloads(g, list.Items, func(of *appsv1.Deployment) Workload {
			return makeWorkload(SourceDeployments, of, &of.Spec.Template, ptr.Deref(of.Spec.Replicas, 1),
				of.Status.ReadyReplicas)
		})
	}
}

func (g *gathering) readStatefulSets(ctx context.Context) {
	list := &appsv1.StatefulSetList{}
	if g.list(ctx, SourceStatefulSets, list, inNamespace(g.ownerNamespace())) {
		noteWorkloads(g, list.Items, func(of *appsv1.StatefulSet) Workload {
			return makeWorkload(SourceStatefulSets, of, &of.Spec.Template, ptr.Deref(of.Spec.Replicas, 1),
				of.Status.ReadyReplicas)
		})
	}
}

func (g *gathering) readDaemonSets(ctx context.Context) {
	list := &appsv1.DaemonSetList{}
	if g.list(ctx, SourceDaemonSets, list, inNamespace(g.ownerNamespace())) {
		noteWorkloads(g, list.Items, func(of *appsv1.DaemonSet) Workload {
			return makeWorkload(SourceDaemonSets, of, &of.Spec.Template, of.Status.DesiredNumberScheduled, of.Status.NumberReady)
		})
	}
}

func noteWorkloads[T any](g *gathering, objects []T, workloadOf func(*T) Workload) {
	g.note(func(facts *Facts) {
		for i := range objects {
			facts.Workloads = append(facts.Workloads, workloadOf(&objects[i]))
		}
	})
}

// readRunningPods reads metadata only: a pod of any other kind of workload may be an owner,
// or one of none.
func (g *gathering) readRunningPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	options := metav1.ListOptions{
		Limit: mostListed, FieldSelector: fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)).String(),
	}
	for seen := 0; ; {
		list, err := g.metadata.Resource(pods).Namespace(g.ownerNamespace()).List(ctx, options)
		if err != nil {
			g.missed(SourcePods, "", err)
			return
		}
		noteWorkloads(g, list.Items, makePod)
		seen += len(list.Items)
		if options.Continue = list.Continue; options.Continue == "" {
			return
		}
		if seen >= mostPods {
			g.note(func(facts *Facts) {
				facts.Unread = append(facts.Unread, Unread{SourcePods, "not all running pods were looked at: " +
					"there are too many"})
			})
			return
		}
	}
}

func (g *gathering) readBindings(ctx context.Context) {
	list := &rbacv1.ClusterRoleBindingList{}
	if g.list(ctx, SourceBindings, list) {
		g.note(func(facts *Facts) { facts.ClusterRoleBindings = list.Items })
	}
}

// makeWorkload collects the names by which a workload can be identified. Commands, arguments and
// environment variables are not among them: they can be confidential, and match by accident.
func makeWorkload(
	source Source, object metav1.Object, template *corev1.PodTemplateSpec, wanted, ready int32,
) Workload {
	account := cmp.Or(template.Spec.ServiceAccountName, "default")
	workload := Workload{
		Source: source, Namespace: object.GetNamespace(), Name: object.GetName(),
		Account: types.NamespacedName{Namespace: object.GetNamespace(), Name: account},
		Wanted:  wanted, Ready: ready, IsDeleted: object.GetDeletionTimestamp() != nil,
	}
	workload.Texts = append(textsOf(object), template.Spec.ServiceAccountName)
	for _, container := range template.Spec.Containers {
		workload.Texts = append(workload.Texts, container.Name)
		workload.Images = append(workload.Images, container.Image)
	}
	return workload
}

func makePod(pod *metav1.PartialObjectMetadata) Workload {
	return Workload{
		Source: SourcePods, Namespace: pod.Namespace, Name: pod.Name, Texts: textsOf(pod),
		Wanted: 1, Ready: 1, IsDeleted: pod.DeletionTimestamp != nil,
	}
}

// textsOf returns the names and labels of an object, in a fixed order.
func textsOf(object metav1.Object) []string {
	texts := []string{object.GetName(), object.GetNamespace()}
	var labels []string
	for key, value := range object.GetLabels() {
		// The key of a label such as app.kubernetes.io/name says nothing.
		if strings.Contains(key, "kubernetes.io/") || !strings.Contains(key, ".") {
			labels = append(labels, value)
			continue
		}
		labels = append(labels, key, value)
	}
	slices.Sort(labels)
	return append(texts, labels...)
}

// readReviews checks whether the ServiceAccounts of possible owners are authorized to act. Public
// findings do not depend on that: those ServiceAccounts are in other namespaces.
func (g *gathering) readReviews(ctx context.Context) {
	if g.IsPublic {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var questions []func()
	for _, question := range g.facts.questions() {
		questions = append(questions, func() {
			isAllowed, err := g.reviewer.mayChange(ctx, question.account, question.of, g.facts.Namespace.Name)
			switch {
			case apierrors.IsForbidden(err):
				g.note(func(facts *Facts) {
					facts.Unread = append(facts.Unread, Unread{SourceReviews, "whether ServiceAccounts may do " +
						"their work is not known: the right to create " + string(SourceReviews) + " is missing"})
				})
			case err != nil:
				g.missed(SourceReviews, "", err)
			default:
				g.note(func(facts *Facts) {
					facts.Reviews = append(facts.Reviews,
						Review{question.account, question.of.GroupResource(), isAllowed})
				})
			}
		})
	}
	sideBySide(questions...)
	g.note(func(facts *Facts) {
		slices.SortFunc(facts.Reviews, func(a, b Review) int {
			return cmp.Or(cmp.Compare(a.Account.String(), b.Account.String()),
				cmp.Compare(a.Resource.String(), b.Resource.String()))
		})
	})
}

// readAccounts finds out which of the ServiceAccounts that bindings name exist.
func (g *gathering) readAccounts(ctx context.Context) {
	var reads []func()
	for _, account := range g.facts.accountsInQuestion() {
		reads = append(reads, func() { g.readAccount(ctx, account) })
	}
	sideBySide(reads...)
}

func (g *gathering) readAccount(ctx context.Context, account types.NamespacedName) {
	list := &corev1.ServiceAccountList{}
	if !g.list(ctx, SourceAccounts, list, inNamespace(account.Namespace), named(account.Name)) {
		return
	}
	g.note(func(facts *Facts) {
		if facts.Accounts == nil {
			facts.Accounts = map[types.NamespacedName]bool{}
		}
		facts.Accounts[account] = len(list.Items) > 0
	})
}

// question is whether an account may change the objects of a type.
type question struct {
	account types.NamespacedName
	of      inventory.Type
}
