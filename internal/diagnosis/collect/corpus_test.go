// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	known "github.com/nslifecycle/nslifecycle/internal/diagnosis/knowncontrollers"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// situation is what all controllers of the corpus do while the namespace of one of them is diagnosed.
type situation string

const (
	// situationRunning: the controllers run, but do and publish nothing.
	situationRunning situation = "running"
	// situationFailing: the controllers run, and publish why they cannot delete the object.
	situationFailing situation = "failing"
	// situationStopped: the workloads of the controllers are scaled to zero.
	situationStopped situation = "stopped"
	// situationUninstalled: of the controllers, only the CustomResourceDefinitions exist.
	situationUninstalled situation = "uninstalled"
)

// outcome is what a finding says about the owner of a finalizer.
type outcome string

const (
	outcomeRunning    outcome = "running"
	outcomePublished  outcome = "published"
	outcomeForbidden  outcome = "forbidden"
	outcomeNotRunning outcome = "not running"
	outcomeNotFound   outcome = "not found"
	outcomeUnknown    outcome = "unknown"
	// outcomeWrongOwner: a workload or ServiceAccount of another controller is named as the owner.
	outcomeWrongOwner outcome = "wrong owner"
)

// corpus is a cluster with all known controllers, and with workloads, ServiceAccounts and Leases that
// have words in common with them, or rights to change every object, but belong to none of them.
type corpus struct {
	controllers []known.Controller
	// owners are the names of the controllers that each workload and ServiceAccount belongs to, by its
	// namespace and name.
	owners    map[string][]string
	workloads []diagnosis.Workload
	roles     []rbacv1.ClusterRole
	bindings  []rbacv1.ClusterRoleBinding
	crdNames  []string
	// hidesManagers leaves the finalizers out of managedFields, as the API server does for a custom type whose
	// schema preserves unknown fields.
	hidesManagers bool
}

// corpusCase is an object with a finalizer of a controller, in a namespace that was deleted.
type corpusCase struct {
	controller *known.Controller
	finalizer  string
	resource   known.Resource
	of         resourcetypes.Type
	// failure is published on the object if it is not nil.
	failure *known.Failure
}

// decoys belong to no controller.
var decoys = []struct{ namespace, name, image, account string }{
	{"shop", "longhorn-dashboard", "registry.example.com/cert-manager/kustomize-viewer", "default"},
	{"shop", "kafka-topics-ui", "registry.example.com/strimzi/topic-ui", "default"},
	{"shop", "bucket-exporter", "registry.example.com/services.k8s.aws/metrics", "default"},
	{"shop", "cluster-deprovision-report", "registry.example.com/hive/openshift-report", "default"},
	{"platform", "operator", "registry.example.com/platform/finalizers", "admin"},
}

func makeCorpus(controllers []known.Controller) *corpus {
	c := &corpus{controllers: controllers, owners: map[string][]string{}}
	for i := range controllers {
		controller := &controllers[i]
		if one, ok := makeCase(controller); ok && !isBuiltIn(one.resource) && !slices.Contains(c.crdNames, one.resource.Name) {
			c.crdNames = append(c.crdNames, one.resource.Name)
		}
		namespace, workload, ok := workloadOf(controller)
		if !ok {
			continue
		}
		image := "registry.example.com/" + strings.ToLower(strings.Split(controller.Project, "/")[0]) + "/" +
			cmp.Or(workload.Image, workload.Name)
		c.addWorkload(namespace, image, &workload)
		rule := rbacv1.PolicyRule{
			APIGroups: controller.Permissions.Groups, Resources: controller.Permissions.Resources,
			Verbs: []string{"get", "list", "watch", "update", "patch"},
		}
		if controller.Permissions.Wildcard {
			rule = rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
		}
		c.grant(namespace, workload.ServiceAccount, namespace+"-"+workload.Name, rule)
		for _, name := range []string{workload.Name, workload.ServiceAccount} {
			name = namespace + "/" + name
			if !slices.Contains(c.owners[name], controller.Name) {
				c.owners[name] = append(c.owners[name], controller.Name)
			}
		}
	}
	for _, decoy := range decoys {
		c.addWorkload(decoy.namespace, decoy.image, &known.Workload{
			Kind: "Deployment", Name: decoy.name, Labels: map[string]string{"app": decoy.name}, ServiceAccount: decoy.account,
		})
		c.owners[decoy.namespace+"/"+decoy.name] = nil
	}
	c.owners["platform/admin"] = nil
	c.grant("platform", "admin", "platform-admin",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	return c
}

// workloadOf returns the workload of a controller with its namespace. If its name is not fixed, it begins
// with the name of an example.
func workloadOf(controller *known.Controller) (namespace string, workload known.Workload, ok bool) {
	if len(controller.Workloads) == 0 {
		return "", workload, false
	}
	namespace = "of-" + slug(controller)
	if len(controller.Namespaces) > 0 {
		namespace = controller.Namespaces[0]
	}
	workload = controller.Workloads[0] // A cluster contains one of the alternatives.
	workload.Name = cmp.Or(workload.Name, "orders-"+cmp.Or(workload.Image, "controller"))
	workload.ServiceAccount = cmp.Or(workload.ServiceAccount, workload.Name)
	return namespace, workload, true
}

func slug(controller *known.Controller) string {
	words := strings.FieldsFunc(strings.ToLower(controller.Name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	name := strings.Join(words, "-")
	return strings.Trim(name[:min(len(name), 50)], "-")
}

// addWorkload adds a workload with one ready pod. Pods without a workload are not searched for.
func (c *corpus) addWorkload(namespace, image string, of *known.Workload) {
	source, ok := map[string]diagnosis.Source{
		"Deployment": diagnosis.SourceDeployments, "StatefulSet": diagnosis.SourceStatefulSets,
		"DaemonSet": diagnosis.SourceDaemonSets,
	}[of.Kind]
	if !ok || slices.ContainsFunc(c.workloads, func(other diagnosis.Workload) bool {
		return other.Source == source && other.Namespace == namespace && other.Name == of.Name
	}) {
		return
	}
	template := &corev1.PodTemplateSpec{}
	template.Labels = of.Labels
	template.Spec.ServiceAccountName = of.ServiceAccount
	template.Spec.Containers = []corev1.Container{{Name: "manager", Image: image + ":v1"}}
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: of.Name, Labels: of.Labels}}
	c.workloads = append(c.workloads, makeWorkload(source, object, template, 1, 1))
}

func (c *corpus) grant(namespace, account, name string, rule rbacv1.PolicyRule) {
	if slices.ContainsFunc(c.roles, func(other rbacv1.ClusterRole) bool { return other.Name == name }) {
		return
	}
	meta := metav1.ObjectMeta{Name: name}
	c.roles = append(c.roles, rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}})
	c.bindings = append(c.bindings, rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	})
}

// makeCase returns a case for a controller. It has none if all its finalizers are on cluster-scoped objects.
func makeCase(controller *known.Controller) (one corpusCase, ok bool) {
	for _, finalizer := range controller.Finalizers {
		for _, resource := range finalizer.Resources {
			if resource.ClusterScoped {
				continue
			}
			name := cmp.Or(finalizer.Name, finalizer.Prefix+"example")
			plural, group, _ := strings.Cut(resource.Name, ".")
			of := resourcetypes.Type{
				GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural},
				Kind:                 resource.Kind, Verbs: []string{"delete", "get", "list", "patch", "update", "watch"},
			}
			return corpusCase{controller: controller, finalizer: name, resource: resource, of: of}, true
		}
	}
	return corpusCase{}, false
}

// isBuiltIn reports whether the API server itself serves a type.
func isBuiltIn(resource known.Resource) bool {
	_, group, _ := strings.Cut(resource.Name, ".")
	return group == "" || slices.Contains([]string{"networking.k8s.io", "storage.k8s.io"}, group)
}

// cases returns a case for each controller with a finalizer on namespaced objects, or for each
// controller that publishes failures.
func (c *corpus) cases(isFailing bool) []corpusCase {
	var cases []corpusCase
	for i := range c.controllers {
		one, ok := makeCase(&c.controllers[i])
		if !ok {
			continue
		}
		if isFailing {
			failures := slices.DeleteFunc(slices.Clone(one.controller.Failures), func(failure known.Failure) bool {
				// The namespace controller deletes Events, and the diagnosis does not read the status of built-in types.
				return failure.IsEvent || isBuiltIn(one.resource)
			})
			if len(failures) == 0 {
				continue
			}
			one.failure = &failures[i%len(failures)]
		}
		cases = append(cases, one)
	}
	return cases
}

// facts returns what the collector reads about the namespace of a case.
func (c *corpus) facts(t *testing.T, one *corpusCase, in situation) *diagnosis.Facts {
	t.Helper()
	object := makeTerminatingObject("orders", one.finalizer)
	object.Namespace = "team-a"
	manager := "manager"
	if len(one.controller.FieldManagers) > 0 {
		manager = one.controller.FieldManagers[0]
	}
	before := metav1.NewTime(deleted.Add(-time.Second))
	fields := `{"f:metadata":{"f:finalizers":{"v:\"` + one.finalizer + `\"":{}}}}`
	if c.hidesManagers && !isBuiltIn(one.resource) {
		fields = `{"f:metadata":{"f:finalizers":{}}}`
	}
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Time: &before, FieldsV1: metav1.NewFieldsV1(fields)}}
	facts := makeFacts(contentOf(one.of, object))
	facts.Namespace.Name = object.Namespace
	setCondition(facts, corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "")
	facts.ResourceTypes, facts.CRDNames = &resourcetypes.Set{}, c.crdNames
	if !isBuiltIn(one.resource) {
		crd := apiextensionsv1.CustomResourceDefinition{}
		crd.Name, crd.Labels, crd.Spec.Group = one.of.String(), one.controller.CRDLabels, one.of.Group
		facts.CRDs = append(facts.CRDs, crd)
	}
	facts.Leases = []coordinationv1.Lease{
		makeLease("kube-system", "kube-controller-manager", "master-1", now),
		makeLease("shop", "team.argocd.crossplane.example.net", "longhorn-dashboard", now),
		makeLease("platform", "velero.cattle.rabbitmq.example.net", "kafka-topics-ui", now.AddDate(0, -2, 0)),
	}
	facts.Workloads = slices.Clone(c.workloads)
	facts.ClusterRoles, facts.ClusterRoleBindings = c.roles, c.bindings
	isDecoy := func(namespace string) bool { return namespace == "shop" || namespace == "platform" }
	switch in {
	case situationStopped:
		for i := range facts.Workloads {
			if !isDecoy(facts.Workloads[i].Namespace) {
				facts.Workloads[i].Desired, facts.Workloads[i].Ready = 0, 0
			}
		}
	case situationUninstalled:
		facts.Workloads = slices.DeleteFunc(facts.Workloads, func(w diagnosis.Workload) bool { return !isDecoy(w.Namespace) })
		facts.ClusterRoles, facts.ClusterRoleBindings = c.roles[len(c.roles)-1:], c.bindings[len(c.bindings)-1:]
	}
	c.readReports(t, facts, one)
	facts.ServiceAccounts = map[types.NamespacedName]bool{}
	for _, account := range owners.ServiceAccountsNeeded(facts) {
		facts.ServiceAccounts[account] = in != situationUninstalled || isDecoy(account.Namespace)
	}
	for _, review := range owners.AccessReviewsNeeded(facts) {
		result := diagnosis.AccessReview{ServiceAccount: review.ServiceAccount, Resource: review.Type.GroupResource()}
		if !isAllowed(facts, review) {
			result.Missing = []string{"patch", "list", "watch"}
		}
		facts.AccessReviews = append(facts.AccessReviews, result)
	}
	return facts
}

func makeLease(namespace, name, holder string, renewed time.Time) coordinationv1.Lease {
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, new(int32(15))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	return lease
}

// isAllowed reports whether a ServiceAccount may change the objects of a type. All rules of the corpus have
// the same verbs.
func isAllowed(facts *diagnosis.Facts, review owners.AccessReview) bool {
	contains := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	for i, binding := range facts.ClusterRoleBindings {
		subject, rule := binding.Subjects[0], facts.ClusterRoles[i].Rules[0]
		if subject.Namespace == review.ServiceAccount.Namespace && subject.Name == review.ServiceAccount.Name &&
			contains(rule.APIGroups, review.Type.Group) && contains(rule.Resources, review.Type.Resource) {
			return true
		}
	}
	return false
}

// readReports reads the failure of a case from the object that the controller published it on.
func (c *corpus) readReports(t *testing.T, facts *diagnosis.Facts, one *corpusCase) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": one.of.GroupVersion().String(), "kind": one.of.Kind,
	}}
	object.SetNamespace(facts.Namespace.Name)
	object.SetName("orders")
	if one.failure != nil {
		fields, value := []string{"status", "conditions"}, any([]any{map[string]any{
			"type": one.failure.Condition, "status": one.failure.Status, "reason": one.failure.Reason, "message": one.message(),
			"lastTransitionTime": deleted.Add(-time.Second).Format(time.RFC3339),
		}})
		if one.failure.Field != "" {
			fields, value = strings.Split(one.failure.Field, "."), one.message()
		}
		if err := unstructured.SetNestedField(object.Object, value, fields...); err != nil {
			t.Fatal(err)
		}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{one.of.GroupVersionResource: one.of.Kind + "List"})
	if err := client.Tracker().Create(one.of.GroupVersionResource, object, object.GetNamespace()); err != nil {
		t.Fatal(err)
	}
	collection := &collection{Collector: &Collector{dynamic: client}, facts: facts}
	collection.readReports(t.Context())
}

// message returns the message that the controller publishes on the object of a case.
func (one *corpusCase) message() string {
	return strings.NewReplacer("$namespace", "team-a", "$name", "orders").Replace(one.failure.Message)
}

// classify returns what the finding about the finalizer of a case says. isRemovable reports whether finalize
// removes the finalizer without a flag. It is the only function that depends on the texts of findings.
func (c *corpus) classify(one *corpusCase, result *diagnosis.Diagnosis) (found outcome, isRemovable bool, message string) {
	at := slices.IndexFunc(result.Findings, func(f diagnosis.Finding) bool { return f.Finalizer == one.finalizer })
	if at < 0 {
		return "no finding", false, ""
	}
	finding := result.Findings[at]
	accused := finding.Message
	if finding.OwnerState == diagnosis.OwnerRunning || finding.OwnerState == diagnosis.OwnerNotRunning {
		accused += " " + strings.Join(diagnosis.TextsOf(finding.Evidence), "\n")
	}
	switch {
	case c.accusesOther(one, accused):
		found = outcomeWrongOwner
	case finding.Rank == diagnosis.RankPublished && one.failure != nil &&
		strings.Contains(finding.Message, diagnosis.OneLine(one.message())):
		found = outcomePublished
	case finding.Cause == diagnosis.CauseFinalizerOwnerForbidden:
		found = outcomeForbidden
	case finding.OwnerState == diagnosis.OwnerNotFound:
		found = outcomeNotFound
	case finding.OwnerState == diagnosis.OwnerNotRunning:
		found = outcomeNotRunning
	case finding.OwnerState == diagnosis.OwnerRunning:
		found = outcomeRunning
	default:
		found = outcomeUnknown
	}
	return found, finding.OwnerState == diagnosis.OwnerAbsent, finding.Message
}

// accusesOther reports whether a text names a workload or ServiceAccount that does not belong to the controller.
func (c *corpus) accusesOther(one *corpusCase, text string) bool {
	isEnd := func(r rune) bool { return strings.ContainsRune(" \t\n\"',;:()", r) }
	for word := range strings.FieldsFuncSeq(text, isEnd) {
		word = strings.TrimSuffix(word, ".")
		names, ok := c.owners[word]
		isDecoy := strings.HasPrefix(word, "shop/") || strings.HasPrefix(word, "platform/")
		if (ok || isDecoy) && !slices.Contains(names, one.controller.Name) {
			return true
		}
	}
	return false
}

func (one *corpusCase) expected(in situation) outcome {
	_, workload, ok := workloadOf(one.controller)
	switch {
	case in == situationFailing:
		return outcomePublished
	case !ok || workload.Kind == "Pod":
		return outcomeUnknown // No workload in the cluster shows whether the controller runs.
	case in == situationRunning:
		return outcomeRunning
	case in == situationStopped:
		return outcomeNotRunning
	case one.controller.Outside:
		return outcomeUnknown // Without a workload in the cluster, the controller can run at the cloud provider.
	}
	return outcomeNotFound
}

// renamedControllers returns all controllers with other domains in their finalizers and API groups,
// so that the data of the diagnosis contains none of them. The names of workloads and field managers
// are the same.
func renamedControllers() []known.Controller {
	domains := map[string]string{}
	rename := func(name string) string {
		prefix, rest, hasPath := strings.Cut(name, "/")
		labels := strings.Split(prefix, ".")
		if len(labels) < 2 {
			return name
		}
		domain := strings.Join(labels[len(labels)-2:], ".")
		if _, ok := domains[domain]; !ok {
			domains[domain] = fmt.Sprintf("d%d.example.net", len(domains)+1)
		}
		renamed := strings.Join(append(slices.Clone(labels[:len(labels)-2]), domains[domain]), ".")
		if hasPath {
			renamed += "/" + rest
		}
		return renamed
	}
	controllers := slices.Clone(known.All())
	for i := range controllers {
		controller := &controllers[i]
		controller.Finalizers = slices.Clone(controller.Finalizers)
		for j := range controller.Finalizers {
			finalizer := &controller.Finalizers[j]
			finalizer.Name, finalizer.Prefix = rename(finalizer.Name), rename(finalizer.Prefix)
			finalizer.Resources = slices.Clone(finalizer.Resources)
			for k, resource := range finalizer.Resources {
				if plural, group, _ := strings.Cut(resource.Name, "."); !isBuiltIn(resource) {
					finalizer.Resources[k].Name = plural + "." + rename(group)
				}
			}
		}
		controller.Permissions.Groups = slices.Clone(controller.Permissions.Groups)
		for j, group := range controller.Permissions.Groups {
			if !isBuiltIn(known.Resource{Name: "x." + group}) {
				controller.Permissions.Groups[j] = rename(group)
			}
		}
	}
	return controllers
}

// A finding must not name another owner, state that a running owner is not running, or make finalize remove
// the finalizer without a flag: nothing in the corpus proves that an owner is absent. If the diagnosis knows
// the controllers, all findings must be right; otherwise, it must infer the controllers and may know less.
func TestCorpusOfKnownControllers(t *testing.T) {
	for name, test := range map[string]struct {
		controllers             []known.Controller
		hasFacts, hidesManagers bool
	}{
		"known":                           {controllers: known.All(), hasFacts: true},
		"known, without field managers":   {controllers: known.All(), hasFacts: true, hidesManagers: true},
		"renamed":                         {controllers: renamedControllers()},
		"renamed, without field managers": {controllers: renamedControllers(), hidesManagers: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := makeCorpus(test.controllers)
			c.hidesManagers = test.hidesManagers
			counts := map[string]int{}
			for _, in := range []situation{situationRunning, situationFailing, situationStopped, situationUninstalled} {
				for _, one := range c.cases(in == situationFailing) {
					result := rules.Diagnose(c.facts(t, &one, in))
					if len(result.Unread) > 0 {
						t.Errorf("%s: unread: %v", one.controller.Name, result.Unread)
					}
					found, isRemovable, message := c.classify(&one, result)
					expected := one.expected(in)
					counts[fmt.Sprintf("expected %s, found %s", expected, found)]++
					isHarmful := found == "no finding" || found == outcomeWrongOwner || isRemovable ||
						found == outcomeNotRunning && (in == situationRunning || in == situationFailing)
					if isHarmful || test.hasFacts && found != expected {
						t.Errorf("%s: %s (%s): expected %s, found %s, removable %t: %s", in, one.controller.Name, one.finalizer,
							expected, found, isRemovable, message)
					}
				}
			}
			for result, count := range diagnosis.Sorted(counts) {
				t.Logf("%3d %s", count, result)
			}
		})
	}
}
