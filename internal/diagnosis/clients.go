// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

// lister lists whole objects of one type.
type lister interface {
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
}

// discoverer names the types that the API server serves, in general and of one group
// version.
type discoverer interface {
	inventory.Discoverer
	ServerResourcesForGroupVersionWithContext(
		ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// trier makes a request as a dry run, and returns the API server's answer.
type trier interface {
	tryDelete(ctx context.Context, of item) error
	tryRelease(ctx context.Context, of item, finalizer string) error
}

// reviewer asks whether a ServiceAccount may do something.
type reviewer interface {
	mayChange(ctx context.Context, account types.NamespacedName, of inventory.Type, namespace string) (bool, error)
}

// dryRunner is the trier of a cluster. Nothing that it sends is ever persisted.
type dryRunner struct{ client metadata.Interface }

func (d dryRunner) tryDelete(ctx context.Context, of item) error {
	background := metav1.DeletePropagationBackground
	return d.client.Resource(of.GroupVersionResource).Namespace(of.Namespace).Delete(ctx, of.Name, metav1.DeleteOptions{
		DryRun: []string{metav1.DryRunAll}, PropagationPolicy: &background,
		Preconditions: &metav1.Preconditions{UID: &of.UID},
	})
}

// tryRelease sends the resource version, so that an object that has changed meanwhile
// answers with a conflict and not with whatever else is wrong with an old list.
func (d dryRunner) tryRelease(ctx context.Context, of item, finalizer string) error {
	others := []string{}
	for _, other := range of.Finalizers {
		if other != finalizer {
			others = append(others, other)
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": of.ResourceVersion, "finalizers": others,
	}})
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	_, err = d.client.Resource(of.GroupVersionResource).Namespace(of.Namespace).Patch(ctx, of.Name,
		types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// accessReviewer is the reviewer of a cluster.
type accessReviewer struct{ client client.Writer }

// mayChange asks for patch and for update, either of which is enough to take a finalizer
// off.
func (a accessReviewer) mayChange(
	ctx context.Context, account types.NamespacedName, of inventory.Type, namespace string,
) (bool, error) {
	for _, verb := range []string{"patch", "update"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
			Groups: []string{
				"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated",
			},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: of.Group, Version: of.Version, Resource: of.Resource,
			},
		}}
		if err := a.client.Create(ctx, review); err != nil {
			return false, err
		}
		if review.Status.Allowed {
			return true, nil
		}
	}
	return false, nil
}

// serverClock tells the time of the API server from the answers that pass, for the
// timestamps that it is compared with are the API server's, and a laptop's clock may be
// minutes off.
type serverClock struct {
	next   http.RoundTripper
	offset atomic.Int64 // what to add to the local time, in nanoseconds
}

// RoundTrip is that of the next one.
func (c *serverClock) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		offset := time.Until(date)
		// The header has whole seconds, and the answer took its way.
		if offset.Abs() < 2*time.Second {
			offset = 0
		}
		c.offset.Store(int64(offset))
	}
	return response, nil
}

func (c *serverClock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

var apiServiceKind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authorizationv1.AddToScheme,
		coordinationv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme, rbacv1.AddToScheme,
		apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// newMapper knows the types that are read as whole objects. It costs no request, as one
// that asks the API server would, and works where discovery fails.
func newMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeRoot
		switch kind.Kind {
		case "Pod", "Service", "Event", "ServiceAccount", "Deployment", "StatefulSet", "DaemonSet", "Lease",
			"EndpointSlice":
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(kind, scope)
	}
	mapper.Add(apiServiceKind, meta.RESTScopeRoot)
	return mapper
}
