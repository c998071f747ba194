// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

var operator = types.NamespacedName{Namespace: "widgets-system", Name: "widgets"}

// makeOperator returns the workload of the controller of widgets. It is identified by its ServiceAccount.
func makeOperator(ready int32) diagnosis.Workload {
	return diagnosis.Workload{
		Source: diagnosis.SourceDeployments, Namespace: operator.Namespace, Name: "controller",
		Containers: []string{"manager"}, Images: []string{"registry.test/widgets/operator:v1"},
		ServiceAccount: operator, Desired: 1, Ready: ready,
	}
}

// withBinding allows a ServiceAccount named widgets to write the status of widgets.
func withBinding(namespace string, exists bool) func(*diagnosis.Facts) {
	role := rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"widgets.example.com"}, Resources: []string{"widgets/status"}, Verbs: []string{"update"},
	}}}
	binding := rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}}
	binding.RoleRef.Name = role.Name
	binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "widgets"}}
	return func(facts *diagnosis.Facts) {
		withDefinition()(facts)
		facts.ClusterRoles = append(facts.ClusterRoles, role)
		facts.ClusterRoleBindings = append(facts.ClusterRoleBindings, binding)
		facts.ServiceAccounts = map[types.NamespacedName]bool{{Namespace: namespace, Name: "widgets"}: exists}
	}
}

// withOperator adds the controller of widgets, with a decoy that only has similar names.
func withOperator(ready int32) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		withBinding(operator.Namespace, true)(facts)
		withWorkloads(makeOperator(ready), makeDecoy(1-ready))(facts)
	}
}

// makeDecoy returns a workload that shares words with the finalizer of widgets, but is not its owner.
func makeDecoy(ready int32) diagnosis.Workload {
	return diagnosis.Workload{
		Source: diagnosis.SourceDeployments, Namespace: "decoys", Name: "widgets.example.com",
		Labels:     map[string]string{"app": "widgets", "widgets.example.com/records": "true"},
		Containers: []string{"widgets"}, Images: []string{"widgets.example.com/records:v1"},
		ServiceAccount: types.NamespacedName{Namespace: "decoys", Name: "widgets"}, Desired: 1, Ready: ready,
	}
}

func makeReport(conditionType string, status metav1.ConditionStatus, message string) diagnosis.Report {
	object := makeDeleted("a")
	return diagnosis.MakeConditionReport(diagnosis.RemainingObject{Type: widgets, PartialObjectMetadata: &object}, &metav1.Condition{
		Type: conditionType, Status: status, Reason: "DeleteFailed", Message: message, LastTransitionTime: metav1.Time{Time: deleted},
	})
}

// Types and finalizers of known controllers.
const (
	clusterFinalizer = "cluster.cluster.x-k8s.io"
	rabbitFinalizer  = "deletion.finalizers.rabbitmqclusters.rabbitmq.com"
	evidencePausedA  = `clusters.cluster.x-k8s.io "a" has annotation cluster.x-k8s.io/paused`
)

var (
	clusters = makeType("cluster.x-k8s.io", "clusters", "Cluster")
	gadgets  = makeType("gadgets.example.com", "gadgets", "Gadget")
	rabbits  = makeType("rabbitmq.com", "rabbitmqclusters", "RabbitmqCluster")
)

// makePaused returns a cluster with an annotation that pauses its controller. A user chose the value.
func makePaused(name string) metav1.PartialObjectMetadata {
	object := makeDeleted(name, clusterFinalizer)
	object.Annotations = map[string]string{"cluster.x-k8s.io/paused": "value\nof a user"}
	return object
}

func withReports(reports ...diagnosis.Report) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) { facts.Reports = append(facts.Reports, reports...) }
}

func withReview(missing ...string) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		facts.AccessReviews = append(facts.AccessReviews, makeAccessReview(operator, widgets.GroupResource(), missing...))
	}
}

func TestFindFinalizers(t *testing.T) {
	left := withContent(contentOf(widgets, makeDeleted("a", held)))
	object := []string{"widgets.widgets.example.com/a"}
	young := makeObject("a", held)
	young.DeletionTimestamp = &metav1.Time{Time: now.Add(-29 * time.Second)}
	touched := makeDeleted("a", held)
	touched.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "widget-engine", Time: &metav1.Time{Time: deleted.Add(time.Second)},
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"` + held + `\"":{}}}}`),
	}}
	byHand := *touched.DeepCopy()
	byHand.ManagedFields[0].Manager = "kubectl-edit"

	failure := makeReport("Synced", "False", "BucketNotEmpty")
	old := failure
	old.At = deleted.Add(-time.Hour)
	withTypes := func(facts *diagnosis.Facts) { facts.ResourceTypes.Types = []resourcetypes.Type{configMaps, widgets} }

	runCases(t, map[string]diagnoseCase{
		"a finalizer within the progress deadline": {facts: makeTerminating(withContent(contentOf(widgets, young)))},
		"a finalizer that is being removed from other objects": {facts: makeTerminating(left, func(facts *diagnosis.Facts) {
			facts.Progress.Released = map[string]int{held: 1}
		})},
		"a condition with a decreasing count": {facts: makeTerminating(left, func(facts *diagnosis.Facts) { facts.Progress.Evidence = "3 and now 1" })},
		"more objects than were listed": {
			facts: makeTerminating(left, func(facts *diagnosis.Facts) { facts.Content[0].Count = 600 }),
			want: []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, "widgets", fmt.Sprintf(evidenceUnlisted, 1, 600, "widgets.widgets.example.com"),
				object}},
		},
		"another finalizer that is being removed": {
			facts: makeTerminating(left, func(facts *diagnosis.Facts) { facts.Progress.Released = map[string]int{"other.example.org/x": 3} }),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageOwnerNotFound), evidenceSearch, object}},
		},
		"a running owner": {
			facts: makeTerminating(left, withOperator(1), withReview()),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerRunning), "widgets-system/controller has 1 of 1", object}},
		},
		"workloads and Leases with similar names": {
			facts: makeTerminating(left, withDefinition(), withWorkloads(makeDecoy(1), makeDecoy(0)),
				withLeases(makeLease("decoys", "widgets.example.com", "x", now))),
			want: []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageOwnerNotFound), "", object}},
		},
		"a ServiceAccount with all permissions": {
			facts: makeTerminating(left, withDefinition(), withWorkloads(makeOperator(1)), withHolder(
				rbacv1.Subject{Kind: "ServiceAccount", Namespace: operator.Namespace, Name: operator.Name}, "all",
				rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}})),
			want: []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, "", "", object}},
		},
		"an owner without permissions": {
			facts: makeTerminating(left, withOperator(1), withReview("patch")),
			want:  []want{{diagnosis.CauseFinalizerOwnerForbidden, diagnosis.RankInferred, literal(messageOwnerForbidden), literal(evidenceForbidden), object}},
		},
		"an owner that cannot watch the objects": {
			facts: makeTerminating(left, withOperator(1), withReview("list", "watch")),
			want:  []want{{diagnosis.CauseFinalizerOwnerForbidden, diagnosis.RankInferred, literal(messageOwnerForbidden), "cannot list or watch widgets.widgets.example.com", object}},
		},
		"an owner that is scaled to zero": {
			facts: makeTerminating(left, withOperator(0)),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotRunning, diagnosis.RankInferred, literal(messageOwnerNotRunning), "has 0 of 1 pods ready", object}},
		},
		"an owner that is scaled to zero, and Deployments that cannot be read": {
			facts: makeTerminating(left, withOperator(0), withUnread(diagnosis.SourceStatefulSets)),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerUnknown), "could not read statefulsets.apps", object}},
		},
		"one of two possible owners is running": {
			facts: makeTerminating(left, withOperator(0), withWorkloads(makeOperator(1))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerUnknown), "has 1 of 1", object}},
		},
		"an owner that was installed with the CustomResourceDefinition": {
			facts: makeTerminating(left, withDefinition(func(crd *apiextensionsv1.CustomResourceDefinition) {
				crd.Annotations = map[string]string{"meta.helm.sh/release-name": "w", "meta.helm.sh/release-namespace": "widgets-system"}
			}), func(facts *diagnosis.Facts) {
				released := makeOperator(0)
				released.Releases = []string{"Helm release widgets-system/w"}
				withWorkloads(released, makeDecoy(1))(facts)
			}),
			want: []want{{diagnosis.CauseFinalizerOwnerNotRunning, diagnosis.RankInferred, literal(messageOwnerNotRunning), "Helm release widgets-system/w", object}},
		},
		"an owner whose ServiceAccount was deleted": {
			facts: makeTerminating(left, withBinding("widgets-system", false)),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, "", "ServiceAccount widgets-system/widgets", object}},
		},
		"an owner that was in the namespace": {
			facts: makeTerminating(left, withBinding(shop, false)),
			want:  []want{{diagnosis.CauseFinalizerOwnerInNamespace, diagnosis.RankInferred, literal(messageOwnerInNamespace), "ServiceAccount shop/widgets", object}},
		},
		"an existing ServiceAccount is not evidence of a running owner": {
			facts: makeTerminating(left, withBinding("widgets-system", true)),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageOwnerNotFound), "", object}},
		},
		"an owner that has updated the object since the deletion": {
			facts: makeTerminating(withContent(contentOf(widgets, touched))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerRunning), "added by widget-engine", object}},
		},
		"an owner that updated the object long ago": {
			facts: makeTerminating(withContent(contentOf(widgets, *touched.DeepCopy())), func(facts *diagnosis.Facts) {
				object := &facts.Content[0].Objects[0]
				object.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)}
				object.ManagedFields[0].Time = &metav1.Time{Time: now.Add(-50 * time.Minute)}
			}),
			want: []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerUnknown), "changed an object at 2026-03-01T11:10:00Z", object}},
		},
		"a workload with the name of the field manager that added the finalizer": {
			facts: makeTerminating(withContent(contentOf(widgets, touched)), withOperator(1), withWorkloads(diagnosis.Workload{
				Source: diagnosis.SourceDeployments, Namespace: "engine", Name: "widget-engine", Desired: 1,
			})),
			want: []want{{diagnosis.CauseFinalizerOwnerNotRunning, diagnosis.RankInferred, literal(messageOwnerNotRunning), "engine/widget-engine has 0 of 1", object}},
		},
		"a workload with an image with the name of the field manager that added the finalizer": {
			facts: makeTerminating(withContent(contentOf(widgets, touched)), withWorkloads(diagnosis.Workload{
				Source: diagnosis.SourceDeployments, Namespace: "engine", Name: "x", Images: []string{"test:5000/a/widget-engine:v1"}, Desired: 1, Ready: 1,
			})),
			want: []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerRunning), "its image is named widget-engine", object}},
		},
		"an update by a user is not evidence of a running owner": {
			facts: makeTerminating(withContent(contentOf(widgets, byHand))),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, "", "kubectl-edit", object}},
		},
		"ClusterRoles that cannot be read": {
			facts: makeTerminating(left, withUnread(diagnosis.SourceClusterRoles)),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerUnknown), "could not read clusterroles", object}},
		},
		"a reason that the running owner published": {
			facts: makeTerminating(left, withOperator(1), withReports(failure)),
			want: []want{{diagnosis.CauseFinalizerOwnerFailing, diagnosis.RankPublished, "condition Synced=False, DeleteFailed: BucketNotEmpty",
				"condition Synced=False, DeleteFailed of widgets.widgets.example.com a", object}},
		},
		"a reason that an unknown owner published": {
			facts: makeTerminating(left, withReports(failure)),
			want:  []want{{diagnosis.CauseFinalizerOwnerFailing, diagnosis.RankPublished, "BucketNotEmpty", "", object}},
		},
		"a reason that an owner published that is no longer running": {
			facts: makeTerminating(left, withOperator(0), withReports(failure)),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotRunning, diagnosis.RankInferred, literal(messageOwnerNotRunning), "BucketNotEmpty", object}},
		},
		"a condition without a problem": {
			facts: makeTerminating(left, withOperator(1), withReports(makeReport("Ready", "True", "all is well"))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, "", "", object}},
		},
		"a finalizer without a domain": {
			facts: makeTerminating(withContent(contentOf(configMaps, makeDeleted("a", "hold")))),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageOwnerNotFound), evidenceSearch, []string{"configmaps/a"}}},
		},
		"a ServiceAccount that was deleted, and an owner that has updated the object since": {
			facts: makeTerminating(withContent(contentOf(widgets, touched)), withBinding("widgets-system", false)),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerRunning), "", object}},
		},
		"a ServiceAccount that was deleted, and a running workload of the same release": {
			facts: makeTerminating(left, withBinding("widgets-system", false), func(facts *diagnosis.Facts) {
				facts.CRDs[0].Annotations = map[string]string{"meta.helm.sh/release-name": "w", "meta.helm.sh/release-namespace": "w"}
				released := makeOperator(1)
				released.ServiceAccount.Name, released.Releases = "other", []string{"Helm release w/w"}
				withWorkloads(released)(facts)
			}),
			want: []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerRunning), "", object}},
		},
		"one of two ServiceAccounts with the permissions was deleted": {
			facts: makeTerminating(left, withBinding("widgets-system", false), func(facts *diagnosis.Facts) {
				binding := *facts.ClusterRoleBindings[0].DeepCopy()
				binding.Subjects[0].Namespace = "edge"
				facts.ClusterRoleBindings = append(facts.ClusterRoleBindings, binding)
				facts.ServiceAccounts[types.NamespacedName{Namespace: "edge", Name: "widgets"}] = true
			}),
			want: []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageOwnerNotFound), "", object}},
		},
		"a workload without ready pods, and an owner that has just updated the object": {
			facts: makeTerminating(withContent(contentOf(widgets, *touched.DeepCopy())), withOperator(0), func(facts *diagnosis.Facts) {
				facts.Content[0].Objects[0].ManagedFields[0].Time = &metav1.Time{Time: now.Add(-time.Second)}
			}),
			want: []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerUnknown), "", object}},
		},
		"a known owner whose field manager is a common name": {
			facts: makeTerminating(withContent(contentOf(rabbits, *touched.DeepCopy())), func(facts *diagnosis.Facts) {
				object := &facts.Content[0].Objects[0]
				object.Finalizers, object.ManagedFields[0].Manager = []string{rabbitFinalizer}, "manager"
			}),
			want: []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageKnownNotFound), "", nil}},
		},
		"two possible owners without permissions": {
			facts: makeTerminating(left, withOperator(1), withWorkloads(makeOperator(1)), withReview("patch")),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerUnknown), "", object}},
		},
		"a finalizer that controllers of two API groups use": {
			facts: makeTerminating(withContent(contentOf(widgets, makeDeleted("a", "cleanup")), contentOf(gadgets, makeDeleted("b", "cleanup"))), withOperator(1)),
			want: []want{
				{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, "gadgets", "", []string{"gadgets.gadgets.example.com/b"}},
				{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, "widgets", "widgets-system/controller", object},
			},
		},
		"a condition from before the deletion whose publisher was not found": {
			facts: makeTerminating(left, withReports(old)),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageOwnerNotFound), "BucketNotEmpty", object}},
		},
		"a condition that reports that an activity has ended": {
			facts: makeTerminating(left, withOperator(1), withReports(makeReport("Issuing", "False", "The certificate has been issued"))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, literal(messageOwnerRunning), "", object}},
		},
		"one of two objects is paused": {
			facts: makeTerminating(withContent(contentOf(clusters, makePaused("a"), makeDeleted("b", clusterFinalizer)))),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageKnownNotFound), evidencePausedA, nil}},
		},
		"an object of an unknown controller has the annotation of another one": {
			facts: makeTerminating(withContent(contentOf(widgets, func() metav1.PartialObjectMetadata {
				object := makeDeleted("a", held)
				object.Annotations = map[string]string{"crossplane.io/paused": "true"}
				return object
			}()))),
			want: []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, literal(messageOwnerNotFound), `widgets.widgets.example.com "a" has annotation crossplane.io/paused=true`, nil}},
		},
		"an object is paused": {
			facts: makeTerminating(withContent(contentOf(clusters, makePaused("a")))),
			want:  []want{{diagnosis.CauseObjectPaused, diagnosis.RankInferred, evidencePausedA, evidencePausedA, nil}},
		},
		"a dependency whose name several types have": {
			facts: makeTerminating(left, withContent(contentOf(clusters, makeObject("p"))), withOperator(1), func(facts *diagnosis.Facts) {
				facts.ResourceTypes.Types = []resourcetypes.Type{makeType("a.example.com", "clusters", "Cluster"), clusters}
			}, withReports(makeReport("Ready", "False", `clusters "p" not found`))),
			want: []want{{diagnosis.CauseFinalizerOwnerFailing, diagnosis.RankPublished, "", "", object}},
		},
		"a finalizer of a running kube-controller-manager": {
			facts: makeTerminating(withContent(contentOf(claims, makeDeleted("a", owners.FinalizerPVC)))),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, "pvc-protection controller", "renewed 1s ago", nil}},
		},
		"a finalizer of a kube-controller-manager that is not running": {
			facts: makeTerminating(withContent(contentOf(claims, makeDeleted("a", owners.FinalizerPVC))), func(facts *diagnosis.Facts) {
				facts.Leases[0] = makeLease("kube-system", "kube-controller-manager", "x", now.Add(-time.Hour))
			}),
			want: []want{{diagnosis.CauseFinalizerOwnerNotRunning, diagnosis.RankInferred, literal(messageBuiltInNotRunning), "renewed 60m ago", nil}},
		},
		"a dependency that does not exist": {
			facts: makeTerminating(left, withOperator(1), withTypes, withReports(makeReport("Ready", "False", `configmaps "p" not found`))),
			want:  []want{{diagnosis.CauseDependencyMissing, diagnosis.RankPublished, `configmaps "p" not found`, `configmaps "p" does not exist in the namespace`, object}},
		},
		"a dependency that exists": {
			facts: makeTerminating(left, withContent(contentOf(configMaps, makeObject("p"))), withOperator(1), withTypes,
				withReports(makeReport("Ready", "False", `configmaps "p" not found`))),
			want: []want{{diagnosis.CauseFinalizerOwnerFailing, diagnosis.RankPublished, "", "", object}},
		},
		"a dependency of a type that cannot be listed": {
			facts: makeTerminating(left, withContent(failing(configMaps, answer(http.StatusForbidden, metav1.StatusReasonForbidden, "no"))),
				withOperator(1), withTypes, withReports(makeReport("Ready", "False", `configmaps "p" not found`))),
			want: []want{{diagnosis.CauseFinalizerOwnerFailing, diagnosis.RankPublished, "", "", object}},
		},
	})
}

// Finalizer and OwnerState determine which finalizers the plugin can remove by force.
func TestFinalizerOfFinding(t *testing.T) {
	const agent = "openshift.com/origin"
	subject := v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "search", Name: "index"}
	withAccount := func(exists bool) func(*diagnosis.Facts) {
		return func(facts *diagnosis.Facts) {
			facts.ServiceAccounts = map[types.NamespacedName]bool{{Namespace: "search", Name: "index"}: exists}
		}
	}
	for name, test := range map[string]struct {
		facts     *diagnosis.Facts
		finalizer string
		state     diagnosis.OwnerState
		remedy    string
	}{
		"a finalizer whose owner was not found": {
			makeTerminating(withContent(contentOf(widgets, makeDeleted("a", held)))), held, diagnosis.OwnerNotFound,
			"kubectl nslifecycle finalize shop --finalizer=" + held,
		},
		"a finalizer whose owner is running": {
			makeTerminating(withContent(contentOf(widgets, makeDeleted("a", held))), withOperator(1)), held, diagnosis.OwnerRunning,
			"kubectl nslifecycle finalize shop --finalizer=" + held,
		},
		"a namespace finalizer whose owner was not found": {
			makeTerminating(withNamespaceFinalizers(agent)), agent, diagnosis.OwnerNotFound, "kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer of a registered initializer": {
			makeTerminating(withNamespaceFinalizers(agent), withInitializerFinalizer(agent)), agent, diagnosis.OwnerUnknown,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer, and configurations that cannot be read": {
			makeTerminating(withNamespaceFinalizers(agent), withUnread(diagnosis.SourceConfigurations)), agent, diagnosis.OwnerUnknown,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer of an initializer whose ServiceAccount does not exist": {
			makeTerminating(withNamespaceFinalizers(agent), withInitializerFinalizer(agent, subject), withAccount(false)), agent, diagnosis.OwnerAbsent,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer of an initializer whose ServiceAccount exists": {
			makeTerminating(withNamespaceFinalizers(agent), withInitializerFinalizer(agent, subject), withAccount(true)), agent, diagnosis.OwnerUnknown,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer of two initializers, and the ServiceAccount of one of them does not exist": {
			makeTerminating(withNamespaceFinalizers(agent), withInitializerFinalizer(agent, subject), withAccount(false), func(facts *diagnosis.Facts) {
				facts.Initializers = append(facts.Initializers, diagnosis.RegisteredInitializer{
					Name: "other.example.com", Finalizer: agent, Configuration: "z", Subjects: []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "ci"}},
				})
			}), agent, diagnosis.OwnerUnknown, "kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a finalizer of Kubernetes in metadata.finalizers of the Namespace": {
			makeTerminating(withNamespaceFinalizers(), func(facts *diagnosis.Facts) { facts.Namespace.Finalizers = []string{"foregroundDeletion"} }),
			"foregroundDeletion", diagnosis.OwnerUnknown, "kubectl nslifecycle finalize shop --metadata-finalizer=foregroundDeletion",
		},
		"a namespace finalizer of an initializer with another subject": {
			makeTerminating(withNamespaceFinalizers(agent), withAccount(false),
				withInitializerFinalizer(agent, subject, v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "ci"})), agent, diagnosis.OwnerUnknown,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"a namespace finalizer whose owner is unknown": {
			makeTerminating(withNamespaceFinalizers("hold")), "hold", diagnosis.OwnerNotFound, "kubectl nslifecycle finalize shop --namespace-finalizer=hold",
		},
		"a namespace finalizer, and workloads that cannot be read": {
			makeTerminating(withNamespaceFinalizers(agent), withUnread(diagnosis.SourceDeployments)), agent, diagnosis.OwnerUnknown,
			"kubectl nslifecycle finalize shop --namespace-finalizer=" + agent,
		},
		"an entry of metadata.finalizers of the Namespace": {
			makeTerminating(withNamespaceFinalizers(), func(facts *diagnosis.Facts) { facts.Namespace.Finalizers = []string{agent} }), agent, diagnosis.OwnerNotFound,
			"kubectl nslifecycle finalize shop --metadata-finalizer=" + agent,
		},
		"a PersistentVolumeClaim in use": {
			makeTerminating(withContent(contentOf(claims, makeDeleted("data", owners.FinalizerPVC))),
				withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp = nil })),
			owners.FinalizerPVC, "", "kubectl nslifecycle finalize shop --finalizer=" + owners.FinalizerPVC,
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings := Diagnose(test.facts).Findings
			if len(findings) != 1 {
				t.Fatalf("got %+v", findings)
			}
			if got := findings[0]; got.Finalizer != test.finalizer || got.OwnerState != test.state ||
				!slices.Contains(got.Remedies, diagnosis.ResolveWith(remedyForcePreview, test.remedy)) {
				t.Errorf("got %q, %q, %q, want %q, %q, %q", got.Finalizer, got.OwnerState, got.Remedies,
					test.finalizer, test.state, test.remedy)
			}
		})
	}
}

// A cloud controller can run outside the cluster, so it can be running without any evidence.
func TestCloudOwnersAreUnknown(t *testing.T) {
	for _, finalizer := range []string{
		owners.FinalizerLoadBalancer, "networking.gke.io/l4-netlb-v2",
		"service.eks.amazonaws.com/resources",
	} {
		found := Diagnose(makeTerminating(withContent(contentOf(services, makeDeleted("web", finalizer)))))
		if len(found.Findings) != 1 || found.Findings[0].OwnerState != diagnosis.OwnerUnknown {
			t.Errorf("%s: got %+v", finalizer, found.Findings)
		}
	}
}
