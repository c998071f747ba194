// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// content is the content of each namespace in a scenario.
type content struct {
	configMaps, secrets, services, deployments, events int
	// held is the number of custom resources with a finalizer. The harness removes the finalizers 2 s
	// after it deletes the namespace.
	held int
	// pods is the number of Pods. They are assigned to a node, so that they have a grace period.
	pods int
}

// scenario is one case.
type scenario struct {
	name, title string
	// crds is the number of CustomResourceDefinitions.
	crds int
	// namespaces is the number of namespaces that are deleted concurrently.
	namespaces int
	content    content
	// ahead is the number of other namespaces that are deleted first, aheadContent their content, and headStart the time
	// between both deletions. The custom resources in them are held until the measured namespaces are removed.
	ahead        int
	aheadContent content
	headStart    time.Duration
	// isAggregated adds an aggregated API server. It responds to requests for the namespaces that are deleted first only
	// after the measured namespaces are removed, and to discovery requests after discoveryDelay.
	isAggregated   bool
	discoveryDelay time.Duration
	// isCrowded adds many objects in other namespaces. idleNamespaces is the number of other namespaces.
	isCrowded      bool
	idleNamespaces int
	// isCheap reports whether --quick includes the scenario.
	isCheap bool
}

const (
	emptyAlone         = "empty"
	emptyWith100CRDs   = "empty-crds-100"
	emptyWith300CRDs   = "empty-crds-300"
	oneThousandMaps    = "configmaps-1000"
	tenThousandMaps    = "configmaps-10000"
	twentyPods         = "pods-20"
	behindStuck        = "behind-stuck-100"
	besideEvents       = "beside-events-10000"
	besideHangingAPI   = "beside-hanging-api"
	slowDiscovery      = "slow-discovery"
	many100            = "many-100-empty"
	many500            = "many-500-empty"
	many100Full        = "many-100-full"
	many500Full        = "many-500-full"
	amongTenThousand   = "many-500-among-10000"
	crowded            = "crowded-"
	crowdSize          = 50_000
	crowdTitle         = ", with 50,000 other objects"
	manyCRDs           = 100
	idleNamespaceCount = 10_000
)

// scenarios returns all cases in the order of the report.
func scenarios() []scenario {
	full := content{configMaps: 8, secrets: 4, services: 4, deployments: 4}
	many := []scenario{
		{name: many100, title: "100 empty namespaces, 100 CRDs", namespaces: 100, crds: manyCRDs},
		{name: many500, title: "500 empty namespaces, 100 CRDs", namespaces: 500, crds: manyCRDs},
		{
			name: many100Full, title: "100 namespaces with 20 objects, 100 CRDs",
			namespaces: 100, crds: manyCRDs, content: full,
		},
		{
			name: many500Full, title: "500 namespaces with 20 objects, 100 CRDs",
			namespaces: 500, crds: manyCRDs, content: full,
		},
	}
	all := []scenario{
		{name: emptyAlone, title: "empty", namespaces: 1, isCheap: true},
		{name: emptyWith100CRDs, title: "empty, 100 CRDs", namespaces: 1, crds: manyCRDs, isCheap: true},
		{name: emptyWith300CRDs, title: "empty, 300 CRDs", namespaces: 1, crds: 300},
		{name: oneThousandMaps, title: "1,000 ConfigMaps", namespaces: 1, content: content{configMaps: 1000}, isCheap: true},
		{name: tenThousandMaps, title: "10,000 ConfigMaps", namespaces: 1, content: content{configMaps: 10_000}},
		{name: "finalizers-1000", title: "1,000 custom resources held for 2 s", namespaces: 1, crds: 1,
			content: content{held: 1000}, isCheap: true},
		{name: twentyPods, title: "20 Pods, 5 s grace period", namespaces: 1, content: content{pods: 20}, isCheap: true},
		{name: behindStuck, title: "empty, behind 100 stuck namespaces", namespaces: 1, crds: 1,
			ahead: 100, aheadContent: content{held: 1}, headStart: 10 * time.Second},
		{name: besideEvents, title: "empty, beside 10 namespaces with 1,000 Events", namespaces: 1,
			ahead: 10, aheadContent: content{events: 1000}},
		// kube-controller-manager finalizes only 10 namespaces concurrently.
		{name: besideHangingAPI, title: "empty, beside 20 namespaces for which an aggregated API hangs", namespaces: 1,
			isAggregated: true, ahead: 20},
		// Only the requests of the API server are slow: it responds to those of the controllers from its cache.
		{name: slowDiscovery, title: "empty, an aggregated API with a discovery of 4 s", namespaces: 1,
			isAggregated: true, discoveryDelay: 4 * time.Second},
	}
	all = append(all, many...)
	for _, s := range many[2:] {
		s.name, s.title, s.isCrowded = crowded+s.name, s.title+crowdTitle, true
		all = append(all, s)
	}
	return append(all, scenario{name: amongTenThousand, title: "500 empty namespaces of 10,500, 100 CRDs",
		namespaces: 500, crds: manyCRDs, idleNamespaces: idleNamespaceCount})
}

// selectScenarios returns the cases with the given names, which are separated by commas. Without
// names, it returns all cases, or only the cheap ones.
func selectScenarios(names string, onlyCheap bool) ([]scenario, error) {
	all := scenarios()
	if names == "" {
		return slices.DeleteFunc(all, func(s scenario) bool { return onlyCheap && !s.isCheap }), nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("unknown case %q; --list prints all cases", name)
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(wanted, s.name) }), nil
}

// computeOrder returns scenarios in the order of measurement. Crowded scenarios come last, because
// the other objects are expensive to remove. The number of CRDs changes as rarely as possible.
func computeOrder(selected []scenario) []scenario {
	ordered := slices.Clone(selected)
	slices.SortStableFunc(ordered, func(a, b scenario) int {
		return cmp.Or(compareBools(a.isCrowded, b.isCrowded), cmp.Compare(a.idleNamespaces, b.idleNamespaces),
			cmp.Compare(a.crds, b.crds))
	})
	return ordered
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// The two sides of a comparison: kube-controller-manager and nslifecycle.
const (
	peer = iota
	ours
)

// sideNames are the names of the sides in the report.
var sideNames = [2]string{"peer", "ours"}

// computeSides returns the order of the sides in a round.
func computeSides(round int, peerOnly, oursOnly bool) []int {
	switch {
	case peerOnly:
		return []int{peer}
	case oursOnly:
		return []int{ours}
	case round%2 == 1:
		return []int{ours, peer}
	}
	return []int{peer, ours}
}

const (
	// holdFinalizer is the finalizer of custom resources. The harness removes it.
	holdFinalizer = "bench.example.com/hold"
	// nodeName is the node to which the Pods are assigned.
	nodeName     = "bench-node"
	graceSeconds = 5

	// crowdNamespaces is the number of other namespaces with objects. Half of these objects are
	// ConfigMaps, and half are custom resources.
	crowdNamespaces = 50
	crowdPrefix     = "bench-crowd"
)

// setCRDs creates or deletes CustomResourceDefinitions to reach the count.
func (c *cluster) setCRDs(ctx context.Context, count int) error {
	before := c.crds
	c.crds = count
	return harness.SetCRDs(ctx, c.dynamic, c.client.Discovery(), before, count)
}

func newCustomResource(i int, name string, finalizers ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"text": "nothing in particular"}}}
	object.SetAPIVersion(harness.CustomType(i).GroupVersion().String())
	object.SetKind(harness.CustomKind(i))
	object.SetName(name)
	object.SetFinalizers(finalizers)
	return object
}

// fill creates the content of a namespace.
func (c *cluster) fill(ctx context.Context, namespace string, what content) error {
	for _, part := range []struct {
		count  int
		create func(ctx context.Context, namespace, name string) error
	}{
		{what.configMaps, c.createConfigMap},
		{what.secrets, c.createSecret},
		{what.services, c.createService},
		{what.deployments, c.createDeployment},
		{what.events, c.createEvent},
		{what.held, c.createHeld},
		{what.pods, c.createPod},
	} {
		names := makeNames("object", part.count)
		if err := harness.InParallel(ctx, part.count, func(ctx context.Context, i int) error {
			return part.create(ctx, namespace, names[i])
		}); err != nil {
			return fmt.Errorf("failed to create the content of namespace %q: %w", namespace, err)
		}
	}
	return nil
}

func (c *cluster) createConfigMap(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": "nothing in particular"},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createSecret(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"text": "nothing in particular"},
	}, metav1.CreateOptions{})
	return err
}

// createService creates a headless Service, because the API server has only 254 cluster IPs.
func (c *cluster) createService(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createDeployment(ctx context.Context, namespace, name string) error {
	labels := map[string]string{"app": name}
	_, err := c.client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: newContainers()},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createEvent(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: namespace, Name: name},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createHeld(ctx context.Context, namespace, name string) error {
	_, err := c.dynamic.Resource(harness.CustomType(0)).Namespace(namespace).Create(ctx,
		newCustomResource(0, name, holdFinalizer), metav1.CreateOptions{})
	return err
}

func (c *cluster) createPod(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, TerminationGracePeriodSeconds: ptr.To[int64](graceSeconds), Containers: newContainers(),
		},
	}, metav1.CreateOptions{})
	return err
}

func newContainers() []corev1.Container {
	return []corev1.Container{{Name: "nothing", Image: "example.com/nothing"}}
}

// release removes the finalizers of the custom resources in a namespace. It ignores resources that
// no longer exist.
func (c *cluster) release(ctx context.Context, namespace string, count int) error {
	names := makeNames("object", count)
	err := harness.InParallel(ctx, count, func(ctx context.Context, i int) error {
		_, err := c.dynamic.Resource(harness.CustomType(0)).Namespace(namespace).Patch(ctx, names[i], types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to remove finalizers in namespace %q: %w", namespace, err)
	}
	return nil
}

// setCrowd creates many objects in namespaces that are not deleted.
func (c *cluster) setCrowd(ctx context.Context) error {
	if c.crowd > 0 {
		return nil
	}
	c.crowd = crowdSize
	namespaces := makeNames(crowdPrefix, crowdNamespaces)
	if err := c.createNamespaces(ctx, namespaces); err != nil {
		return fmt.Errorf("failed to create namespaces for other objects: %w", err)
	}
	names := makeNames("object", crowdSize)
	err := harness.InParallel(ctx, crowdSize, func(ctx context.Context, i int) error {
		namespace := namespaces[i/2%crowdNamespaces]
		if i%2 == 0 {
			return c.createConfigMap(ctx, namespace, names[i])
		}
		// Only half of the types have objects in other namespaces.
		kind := i / 2 % (manyCRDs / 2)
		_, err := c.dynamic.Resource(harness.CustomType(kind)).Namespace(namespace).Create(ctx,
			newCustomResource(kind, names[i]), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to create other objects: %w", err)
	}
	return nil
}
