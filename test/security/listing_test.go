// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// listing contains the UIDs of the objects in a cluster by "resource.group namespace/name".
type listing map[string]types.UID

// listEverything lists all objects that kube-apiserver serves and that are not being deleted. It omits
// Events and Leases, which expire, and objects in terminating namespaces.
func listEverything(ctx context.Context) listing {
	GinkgoHelper()
	config := controlplane.Unlimited(cluster.Admin.Config)
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	objects, err := metadata.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	// Discovery of a hostile API server can fail.
	lists, _ := discoveryClient.ServerPreferredResources()
	Expect(lists).NotTo(BeEmpty())
	found, terminating := listing{}, sets.New[string]()
	var keys []string
	var namespaces []string
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			if !isListed(groupVersion.Group, resource.Name, resource.Verbs) {
				continue
			}
			gvr := groupVersion.WithResource(resource.Name)
			page, err := objects.Resource(gvr).List(ctx, metav1.ListOptions{})
			Expect(err).NotTo(HaveOccurred(), gvr.String())
			for _, object := range page.Items {
				isNamespace := gvr.GroupResource() == schema.GroupResource{Resource: "namespaces"}
				switch {
				case object.DeletionTimestamp == nil:
					key := gvr.GroupResource().String() + " " + object.Namespace + "/" + object.Name
					found[key] = object.UID
					keys, namespaces = append(keys, key), append(namespaces, object.Namespace)
				case isNamespace:
					terminating.Insert(object.Name)
				}
			}
		}
	}
	for i, key := range keys {
		if terminating.Has(namespaces[i]) {
			delete(found, key)
		}
	}
	return found
}

func isListed(group, resource string, verbs []string) bool {
	return sets.New(verbs...).Has("list") && !strings.HasSuffix(group, "vendor.example.com") &&
		// The API server does not serve the types watch and proxy in all namespaces.
		!sets.New("events", "leases", "componentstatuses", "watch", "proxy").Has(resource)
}

// expectKept checks that all objects of the listing still exist with their UIDs, except those in the
// given namespaces, which the spec has deleted.
func (l listing) expectKept(ctx context.Context, deleted ...string) {
	GinkgoHelper()
	now, missing := listEverything(ctx), []string{}
	for key, uid := range l {
		resource, name, _ := strings.Cut(key, " ")
		namespace, name, _ := strings.Cut(name, "/")
		isDeleted := sets.New(deleted...).Has(namespace) || resource == "namespaces" && sets.New(deleted...).Has(name)
		if !isDeleted && now[key] != uid {
			missing = append(missing, key)
		}
	}
	Expect(missing).To(BeEmpty(), "objects that were deleted or replaced")
}

// expectNoneTerminating waits until the namespaces of previous specs are finalized.
func expectNoneTerminating(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &corev1.NamespaceList{}
		g.Expect(cluster.Admin.List(ctx, list)).To(Succeed())
		for i := range list.Items {
			g.Expect(list.Items[i].DeletionTimestamp).To(BeNil(), list.Items[i].Name)
		}
	}).WithContext(ctx).Should(Succeed())
}
