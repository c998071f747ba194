// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

const (
	// mostListed is how many objects of a type are looked at; the rest is counted.
	mostListed = 500
	// lookDistance is how long after the first look at what is left the second one comes.
	lookDistance = 700 * time.Millisecond
	// mostDefinitions is how many CustomResourceDefinitions are read as a whole.
	mostDefinitions = 20
)

var definitionResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// readDeath reads what matters about a namespace that is being deleted. What comes later
// depends on what came before; everything else is read side by side.
func (g *gathering) readDeath(ctx context.Context) {
	sideBySide(
		func() { g.discover(ctx) },
		func() { g.readAPIServices(ctx) },
		func() { g.readDefinitionNames(ctx) },
		func() { g.readTokens(ctx) },
	)
	g.readContent(ctx)
	sideBySide(
		func() { g.lookAgain(ctx) },
		func() { g.askDirectly(ctx) },
		func() { g.readDefinitions(ctx) },
		func() { g.readPods(ctx) },
		func() { g.try(ctx) },
		func() { g.readComplaints(ctx) },
		func() { g.readOwners(ctx) },
	)
	sideBySide(
		func() { g.readAdmission(ctx) },
		func() { g.readReviews(ctx) },
		func() { g.readAccounts(ctx) },
	)
	g.readBackends(ctx)
}

func (g *gathering) discover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*answerTimeout)
	defer cancel()
	found, err := inventory.Discover(ctx, g.discoverer)
	if err != nil {
		g.missed(SourceDiscovery, "", err)
		return
	}
	g.note(func(facts *Facts) { facts.Inventory = found })
}

// askDirectly asks for the types of each group version that discovery lacks: what the API
// server has in its cache may be out of date.
func (g *gathering) askDirectly(ctx context.Context) {
	if g.facts.Inventory == nil {
		return
	}
	var questions []func()
	for groupVersion := range g.facts.Inventory.Failed {
		questions = append(questions, func() {
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			_, err := g.discoverer.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
			g.note(func(facts *Facts) {
				if facts.Direct == nil {
					facts.Direct = map[schema.GroupVersion]error{}
				}
				facts.Direct[groupVersion] = err
			})
		})
	}
	sideBySide(questions...)
}

func (g *gathering) readAPIServices(ctx context.Context) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiServiceKind.GroupVersion().WithKind(apiServiceKind.Kind + "List"))
	if !g.list(ctx, SourceAPIServices, list) {
		return
	}
	var services []APIService
	for i := range list.Items {
		if service, isLocal := toAPIService(&list.Items[i]); !isLocal {
			services = append(services, service)
		}
	}
	g.note(func(facts *Facts) { facts.APIServices = services })
}

// toAPIService reads an APIService; isLocal says that kube-apiserver itself answers for it.
func toAPIService(object *unstructured.Unstructured) (service APIService, isLocal bool) {
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(object.Object, fields...)
		return value
	}
	service.Name = object.GetName()
	service.GroupVersion = schema.GroupVersion{Group: text("spec", "group"), Version: text("spec", "version")}
	service.Service = types.NamespacedName{
		Namespace: text("spec", "service", "namespace"), Name: text("spec", "service", "name"),
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, isMap := condition.(map[string]any)
		if !isMap || fields["type"] != "Available" {
			continue
		}
		service.IsAvailable = fields["status"] == "True"
		service.Reason, _ = fields["reason"].(string)
		service.Message, _ = fields["message"].(string)
		since, _ := fields["lastTransitionTime"].(string)
		service.Since, _ = time.Parse(time.RFC3339, since)
	}
	return service, service.Service.Name == ""
}

// readDefinitionNames reads no more than the names of CustomResourceDefinitions: their
// schemas may be megabytes.
func (g *gathering) readDefinitionNames(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	list, err := g.metadata.Resource(definitionResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		g.missed(SourceDefinitions, "", err)
		return
	}
	names := make([]string, 0, len(list.Items))
	for _, definition := range list.Items {
		names = append(names, definition.Name)
	}
	slices.Sort(names)
	g.note(func(facts *Facts) { facts.DefinitionNames = names })
}

// readDefinitions reads the CustomResourceDefinitions of what is left.
func (g *gathering) readDefinitions(ctx context.Context) {
	var reads []func()
	for _, content := range g.facts.Content {
		name := content.Type.String()
		if !slices.Contains(g.facts.DefinitionNames, name) || len(reads) == mostDefinitions {
			continue
		}
		reads = append(reads, func() {
			list := &apiextensionsv1.CustomResourceDefinitionList{}
			if g.list(ctx, SourceDefinitions, list, named(name)) {
				g.note(func(facts *Facts) { facts.Definitions = append(facts.Definitions, list.Items...) })
			}
		})
	}
	sideBySide(reads...)
	g.note(func(facts *Facts) {
		slices.SortFunc(facts.Definitions, func(a, b apiextensionsv1.CustomResourceDefinition) int {
			return strings.Compare(a.Name, b.Name)
		})
	})
}

func (g *gathering) readContent(ctx context.Context) {
	if g.facts.Inventory == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	name := g.facts.Namespace.Name
	content := inventory.List(ctx, g.metadata, name, g.facts.Inventory.Types, mostListed)
	for _, of := range content {
		switch {
		case of.Err == nil:
		case isMissingRight(of.Err):
			g.missed(Source(of.Type.String()), name, of.Err)
		case !isAnswer(of.Err):
			g.note(func(facts *Facts) {
				facts.Unread = append(facts.Unread, Unread{SourceContent, oneLine(of.Err.Error())})
			})
		}
	}
	g.facts.Content = content
}

// lookAgain finds out whether what is left becomes less, where that matters: where
// something is left for so long that it would be blamed.
func (g *gathering) lookAgain(ctx context.Context) {
	facts := g.facts
	if said := whatConditionsProve(facts); said != "" {
		g.note(func(facts *Facts) { facts.Movement.Said = said })
		return
	}
	var listed []inventory.Type
	for _, content := range facts.Content {
		if content.Count > 0 && content.Err == nil {
			listed = append(listed, content.Type)
		}
	}
	if len(listed) == 0 || !facts.isOverdue(facts.Namespace.DeletionTimestamp.Time) {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(lookDistance):
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	second := inventory.List(ctx, g.metadata, facts.Namespace.Name, listed, mostListed)
	g.note(func(facts *Facts) {
		facts.Movement = computeMovement(facts.Content, second)
		for _, content := range second {
			if content.Err != nil {
				facts.Unread = append(facts.Unread, Unread{SourceContent, fmt.Sprintf(
					"whether %s become less is not known: the second look at them failed: %s", content.Type,
					oneLine(content.Err.Error()))})
			}
		}
	})
}

// readPods reads the pods that are left, and their nodes. What uses a claim is a pod, too.
func (g *gathering) readPods(ctx context.Context) {
	isLeft := slices.ContainsFunc(g.facts.Content, func(content inventory.Content) bool {
		return content.Type.GroupResource() == podResource && content.Count > 0
	})
	if !isLeft {
		return
	}
	list := &corev1.PodList{}
	if !g.list(ctx, SourcePods, list, inNamespace(g.facts.Namespace.Name), atMost(mostListed)) {
		return
	}
	const mostNodes = 20
	var reads []func()
	var seen []string
	for i := range list.Items {
		node := list.Items[i].Spec.NodeName
		if node == "" || slices.Contains(seen, node) {
			continue
		}
		if len(seen) == mostNodes {
			g.note(func(facts *Facts) {
				facts.Unread = append(facts.Unread, Unread{SourceNodes,
					fmt.Sprintf("no more than %d of the nodes that pods are left on were looked at", mostNodes)})
			})
			break
		}
		seen = append(seen, node)
		reads = append(reads, func() {
			nodes := &corev1.NodeList{}
			if g.list(ctx, SourceNodes, nodes, named(node)) {
				g.note(func(facts *Facts) { facts.Nodes = append(facts.Nodes, nodes.Items...) })
			}
		})
	}
	sideBySide(reads...)
	g.note(func(facts *Facts) {
		facts.Pods = list.Items
		slices.SortFunc(facts.Nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	})
}

// isStale tells whether an error is discovery's of a group version that is out of date.
func isStale(err error) bool {
	_, isStale := err.(discovery.StaleGroupVersionError) //nolint:errorlint // discovery never wraps it
	return isStale
}
