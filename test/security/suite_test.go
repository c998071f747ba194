// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
)

// cluster is shared by all specs that do not modify the installation.
var cluster *framework.Cluster

var (
	HaveCondition = matchers.HaveCondition
	BeDeniedBy    = matchers.BeDeniedBy
	BeForbiddenBy = matchers.BeForbiddenBy
)

func TestSecurity(t *testing.T) {
	framework.RunSuite(t, "Security")
}

var _ = BeforeSuite(func(ctx context.Context) {
	startCluster(ctx)
	cluster.ExpectInjected(ctx)
})

// startCluster replaces the cluster until the container ends.
func startCluster(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	shared := cluster
	DeferCleanup(func() { cluster = shared })
	cluster = framework.Start(ctx)
	cluster.StartObserver(ctx)
	cluster.Install(ctx, "default")
	cluster.StartManager(ctx, changes...)
}

// specTimeout is the timeout of a spec. On a busy machine, a control plane can take a minute to
// serve a new type.
const specTimeout = 5 * time.Minute

// send sends a request with a raw body that client-go would not produce. An error contains the
// Status that the API server returned.
func send(
	ctx context.Context, user *framework.User, method, path, contentType string, body []byte,
) (map[string]any, error) {
	GinkgoHelper()
	httpClient, err := rest.HTTPClientFor(user.Config)
	Expect(err).NotTo(HaveOccurred())
	answer := sendAs(ctx, httpClient, "", method, strings.TrimSuffix(user.Config.Host, "/")+path, contentType, body)
	if answer.code >= http.StatusBadRequest {
		status := metav1.Status{}
		if json.Unmarshal([]byte(answer.text), &status) != nil || status.Kind != "Status" {
			status = metav1.Status{Status: metav1.StatusFailure, Message: answer.text}
		}
		status.Code = int32(answer.code)
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	object := map[string]any{}
	Expect(json.Unmarshal([]byte(answer.text), &object)).To(Succeed(), answer.text)
	return object, nil
}

// HaveCode matches an error returned by the API server with the given HTTP status code.
func HaveCode(code int32) gomegatypes.GomegaMatcher {
	return WithTransform(func(err error) int32 {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return status.Status().Code
		}
		return 0
	}, Equal(code))
}

// pathOf returns the path of a namespace or of one of its subresources, such as "status" or
// "status?dryRun=All".
func pathOf(namespace *corev1.Namespace, subresource string) string {
	path := "/api/v1/namespaces/" + namespace.Name
	if subresource == "" || strings.HasPrefix(subresource, "?") {
		return path + subresource
	}
	return path + "/" + subresource
}

// fill replaces %NAME% in a body with the name of the namespace.
func fill(body string, namespace *corev1.Namespace) string {
	return strings.ReplaceAll(body, "%NAME%", namespace.Name)
}

// withoutFinalizers is a patch that removes all finalizers of an object.
var withoutFinalizers = framework.MergePatch(`{"metadata":{"finalizers":null}}`)

// resultPatch returns a patch that sets the result of an initialization.
func resultPatch(result string) client.Patch {
	GinkgoHelper()
	return framework.MergePatch(string(mustEncode(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		v1alpha1.AnnotationInitializationResult: result,
	}}})))
}

func mustEncode(value any) []byte {
	GinkgoHelper()
	text, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// repeatUntil calls a function repeatedly until the channel is closed.
func repeatUntil(stop <-chan struct{}, do func()) {
	for {
		select {
		case <-stop:
			return
		default:
			do()
		}
	}
}

// stateKeys are the keys of the annotations that policy inject sets.
var stateKeys = []string{
	v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializers, v1alpha1.AnnotationRequestedBy,
}

// expectUnchanged checks that a namespace is still initializing and has the state that policy
// inject set.
func expectUnchanged(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	now := cluster.GetNamespace(Default, ctx, namespace.Name)
	Expect(now.UID).To(Equal(namespace.UID))
	Expect(now.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	for _, key := range stateKeys {
		Expect(now.Annotations).To(HaveKeyWithValue(key, namespace.Annotations[key]))
	}
	Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationInitializationResult))
}

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
	// A namespace can be removed between the requests for its objects and for the namespaces, so list these also first.
	found, terminating := listing{}, sets.New[string]()
	var before corev1.NamespaceList
	Expect(cluster.Admin.List(ctx, &before)).To(Succeed())
	for i := range before.Items {
		if before.Items[i].DeletionTimestamp != nil {
			terminating.Insert(before.Items[i].Name)
		}
	}
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
	return sets.New(verbs...).Has("list") && !strings.HasSuffix(group, "aggregated.example.com") &&
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
