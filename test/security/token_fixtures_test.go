// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// fixture is the name of the fixtures, and second that of another one in a terminating namespace, in which a
	// deleted object cannot be created again.
	fixture, second = "stolen-token", "stolen-token-2"
	// group is the API group of the custom types.
	group = "stolen-token.example.com"
)

// The states of the Namespaces, and places outside the Namespaces of users, as in the table.
const (
	live, initializing, terminating = "live", "initializing", "terminating"
	failed                          = "failed"
	kubeSystem, defaultNamespace    = "kube-system", "default"
	systemNamespace                 = controlplane.SystemNamespace
	sourceNamespace                 = controlplane.SourceNamespace
	clusterScope                    = "cluster"
)

// The places that contain namespaced fixtures, and the states of Namespaces on which permissions on Namespaces are
// tried.
var (
	placesWithContent = []string{live, initializing, terminating, defaultNamespace, kubeSystem, systemNamespace, sourceNamespace}
	namespaceStates   = []string{
		live, initializing, terminating, failed, defaultNamespace, kubeSystem, systemNamespace, sourceNamespace,
	}
)

// permanentNamespaces exist in each cluster, or are installed.
var permanentNamespaces = map[string]string{
	defaultNamespace: defaultNamespace, kubeSystem: kubeSystem, systemNamespace: systemNamespace,
	sourceNamespace: sourceNamespace,
}

// withoutFixture contains the types that can be created and deleted but have no fixture, with the reason.
var withoutFixture = map[string]string{
	"namespaceinitializersets.internal.nslifecycle.dev": `the operator creates the only one, named "effective"`,
}

//go:embed testdata/fixtures.yaml
var fixturesYAML string

// resource is a type that the API server serves, in its preferred version.
type resource struct {
	metav1.APIResource
	version schema.GroupVersion
}

// String returns the name of the type in the table.
func (r resource) String() string {
	return schema.GroupResource{Group: r.version.Group, Resource: r.Name}.String()
}

func (r resource) serves(verb string) bool { return slices.Contains(r.Verbs, verb) }

// path returns the path of a collection, an object or a subresource, or, for a subresource, that of an object. The
// namespace is ignored for a cluster-scoped type.
func (r resource) path(namespace string, parts ...string) string {
	path := "/apis/" + r.version.String()
	if r.version.Group == "" {
		path = "/api/" + r.version.Version
	}
	if r.Namespaced {
		path += "/namespaces/" + namespace
	}
	name, subresource, _ := strings.Cut(r.Name, "/")
	for _, part := range slices.Concat([]string{name}, parts, []string{subresource}) {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// discover returns all types in the preferred versions, by name.
func discover(ctx context.Context) map[string]resource {
	GinkgoHelper()
	client, err := discovery.NewDiscoveryClientForConfig(controlplane.Unlimited(cluster.Admin.Config))
	Expect(err).NotTo(HaveOccurred())
	lists, err := client.ServerPreferredResourcesWithContext(ctx)
	Expect(err).NotTo(HaveOccurred())
	found := map[string]resource{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, one := range list.APIResources {
			served := resource{one, version}
			found[served.String()] = served
		}
	}
	return found
}

// fixtures are the objects in testdata/fixtures.yaml.
type fixtures struct {
	// types are all types that the API server serves.
	types map[string]resource
	// objects are the fixtures by the name of their type.
	objects map[string]*unstructured.Unstructured
	// namespaces are the names of the namespaces with content, by state.
	namespaces map[string]string
}

// parseFixtures returns the objects in testdata/fixtures.yaml in the order of the file.
func parseFixtures() []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split(fixturesYAML, "\n---\n") {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed(), document)
		if object.Object == nil {
			continue
		}
		if object.GetName() == "" {
			object.SetName(fixture)
		}
		objects = append(objects, object)
	}
	return objects
}

// fixturesByKind returns the objects in testdata/fixtures.yaml by their type.
var fixturesByKind = sync.OnceValue(func() map[schema.GroupKind]*unstructured.Unstructured {
	byKind := map[schema.GroupKind]*unstructured.Unstructured{}
	for _, object := range parseFixtures() {
		byKind[object.GroupVersionKind().GroupKind()] = object
	}
	return byKind
})

// createClusterFixtures creates the custom types and the cluster-scoped objects, and fails if a type has no fixture.
func createClusterFixtures(ctx context.Context) *fixtures {
	GinkgoHelper()
	f := &fixtures{objects: map[string]*unstructured.Unstructured{}, namespaces: map[string]string{}}
	for _, object := range parseFixtures() {
		if object.GetKind() == "CustomResourceDefinition" {
			mustCreate(ctx, resource{APIResource: metav1.APIResource{Name: "customresourcedefinitions"},
				version: object.GroupVersionKind().GroupVersion()}.path(""), object)
		}
	}
	Eventually(func(g Gomega) {
		f.types = discover(ctx)
		g.Expect(f.types).To(And(HaveKey("widgets."+group), HaveKey("gadgets."+group)))
	}).WithContext(ctx).Should(Succeed())

	byKind := fixturesByKind()
	for _, name := range slices.Sorted(maps.Keys(f.types)) {
		one := f.types[name]
		object := byKind[schema.GroupKind{Group: one.version.Group, Kind: one.Kind}]
		if object == nil {
			if one.serves("create") && one.serves("delete") {
				Expect(withoutFixture).To(HaveKey(name), "add a fixture to testdata/fixtures.yaml, or a reason")
			}
			continue
		}
		object.SetAPIVersion(one.version.String())
		f.objects[name] = object
		if !one.Namespaced && one.serves("delete") && name != "namespaces" && one.Kind != "CustomResourceDefinition" {
			mustCreate(ctx, one.path(""), object)
		}
	}
	return f
}

// object returns the fixture of a type for a namespace.
func (f *fixtures) object(name, namespace string) *unstructured.Unstructured {
	object := f.objects[name].DeepCopy()
	if f.types[name].Namespaced {
		object.SetNamespace(namespace)
	}
	replaceNamespace(object.Object, namespace)
	return object
}

func replaceNamespace(value map[string]any, namespace string) {
	for key, child := range value {
		switch child := child.(type) {
		case map[string]any:
			replaceNamespace(child, namespace)
		case string:
			value[key] = strings.ReplaceAll(child, "%NAME%", namespace)
		}
	}
}

// createContent creates new namespaces in all states with content, and the namespaced fixtures in them. Fixtures that
// exist in the other namespaces are kept.
func (f *fixtures) createContent(ctx context.Context) {
	GinkgoHelper()
	f.namespaces = maps.Clone(permanentNamespaces)
	for _, state := range []string{live, initializing} {
		f.namespaces[state] = createNamespace(ctx, state)
	}
	// The namespace is terminating only after its content has been created.
	f.namespaces[terminating] = createNamespace(ctx, live)
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		one := f.types[name]
		if !one.Namespaced || !one.serves("delete") {
			continue
		}
		for _, place := range placesWithContent {
			object := f.object(name, f.namespaces[place])
			mustCreate(ctx, one.path(object.GetNamespace()), object)
			if place == terminating {
				object.SetName(second)
				mustCreate(ctx, one.path(object.GetNamespace()), object)
			}
		}
	}
	cluster.Admin.Deletes(ctx, wrappers.MakeNamespace(f.namespaces[terminating]).Obj())
}

// createNamespace creates a Namespace in a state. If a manager runs, it deletes a failed one.
func createNamespace(ctx context.Context, state string) string {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(framework.Unique(state))
	isInitializing := state == initializing || state == failed
	if isInitializing {
		namespace.Label(fixture, initializing)
	}
	object := namespace.Obj()
	cluster.Admin.Creates(ctx, object)
	if isInitializing {
		Expect(object.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	} else {
		Expect(object.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	}
	switch state {
	case failed:
		object.Annotations[v1alpha1.AnnotationInitializationResult] = failure
		cluster.Admin.Updates(ctx, object)
	case terminating:
		// The namespace finalizer "kubernetes" keeps it.
		cluster.Admin.Deletes(ctx, object)
	}
	return object.Name
}

// failure is the result of a failed initialization.
const failure = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"r"}`

// takeSnapshot returns the content of all objects by path, without what the API server and the managers change.
func takeSnapshot(ctx context.Context, types map[string]resource) map[string]string {
	GinkgoHelper()
	snapshot := map[string]string{}
	for name, one := range types {
		isEvent := strings.HasPrefix(name, "events")
		if !one.serves("list") || !one.serves("delete") || isEvent {
			continue
		}
		all := one
		all.Namespaced = false
		for _, object := range list(ctx, all.path("")) {
			for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
			unstructured.RemoveNestedField(object.Object, "status")
			switch name {
			case "leases.coordination.k8s.io":
				unstructured.RemoveNestedField(object.Object, "spec") // Renewed.
			case "mutatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io":
				// The operator changes that of its policies a minute after the installation.
				unstructured.RemoveNestedField(object.Object, "spec", "failurePolicy")
			case "pods": // The operator deletes those in terminating namespaces.
				unstructured.RemoveNestedField(object.Object, "metadata", "deletionTimestamp")
				unstructured.RemoveNestedField(object.Object, "metadata", "deletionGracePeriodSeconds")
			}
			text, err := json.MarshalIndent(object.Object, "", " ")
			Expect(err).NotTo(HaveOccurred())
			snapshot[one.path(object.GetNamespace(), object.GetName())] = string(text)
		}
	}
	return snapshot
}

// expectExplained checks that a successful attempt explains each difference between two snapshots.
func expectExplained(before, after map[string]string, successes []success) {
	GinkgoHelper()
	var unexplained []string
	for path := range maps.Keys(merge(before, after)) {
		if before[path] != after[path] && !slices.ContainsFunc(successes, func(one success) bool {
			isWrite := slices.Index(apiVerbs, one.verb) >= createIndex
			// The admission controller computes this policy from the set, and deletes it if the set contains no
			// confined initializers.
			isConsequence := one.resource == "namespaceinitializersets.internal.nslifecycle.dev" &&
				strings.HasSuffix(path, "/nslifecycle-confined-initializers")
			return isWrite && (isConsequence || path == one.path || path+"/"+one.subresource == one.path || strings.HasPrefix(path, one.path+"/"))
		}) {
			unexplained = append(unexplained, path+"\n"+cmp.Diff(before[path], after[path]))
		}
	}
	slices.Sort(unexplained)
	Expect(unexplained).To(BeEmpty(), strings.Join(unexplained, "\n"))
}

func merge(a, b map[string]string) map[string]string {
	merged := maps.Clone(a)
	maps.Copy(merged, b)
	return merged
}
