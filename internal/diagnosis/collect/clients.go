// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

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
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// lister lists typed objects.
type lister interface {
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
}

// discoverer discovers resource types: all, or those of one group version.
type discoverer interface {
	resourcetypes.Discoverer
	ServerResourcesForGroupVersionWithContext(
		ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// dryRunner makes requests as dry runs, and returns the response of the API server.
type dryRunner interface {
	delete(ctx context.Context, object diagnosis.RemainingObject) error
	removeFinalizer(ctx context.Context, object diagnosis.RemainingObject, finalizer string) error
}

// accessReviewer checks permissions of ServiceAccounts.
type accessReviewer interface {
	canChange(ctx context.Context, account types.NamespacedName, of resourcetypes.Type, namespace string) (bool, error)
}

// clusterDryRunner is the dryRunner of a cluster.
type clusterDryRunner struct{ client metadata.Interface }

func (d clusterDryRunner) delete(ctx context.Context, object diagnosis.RemainingObject) error {
	background := metav1.DeletePropagationBackground
	return d.client.Resource(object.GroupVersionResource).Namespace(object.Namespace).Delete(ctx, object.Name,
		metav1.DeleteOptions{
			DryRun: []string{metav1.DryRunAll}, PropagationPolicy: &background,
			Preconditions: &metav1.Preconditions{UID: &object.UID},
		})
}

// removeFinalizer sends the resource version, so that the response for an object that changed is a
// conflict and no other error.
func (d clusterDryRunner) removeFinalizer(
	ctx context.Context, object diagnosis.RemainingObject, finalizer string,
) error {
	finalizers := []string{}
	for _, other := range object.Finalizers {
		if other != finalizer {
			finalizers = append(finalizers, other)
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": object.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("failed to encode a patch: %w", err)
	}
	_, err = d.client.Resource(object.GroupVersionResource).Namespace(object.Namespace).Patch(ctx, object.Name,
		types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// clusterAccessReviewer is the accessReviewer of a cluster.
type clusterAccessReviewer struct{ client client.Writer }

// canChange reviews patch and update. Either verb suffices to remove a finalizer.
func (a clusterAccessReviewer) canChange(
	ctx context.Context, account types.NamespacedName, of resourcetypes.Type, namespace string,
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

// serverClock is the clock of the API server according to its responses. Facts are compared with
// timestamps of the API server, and the local clock can differ by minutes.
type serverClock struct {
	next   http.RoundTripper
	offset atomic.Int64 // the difference from the local time in nanoseconds
}

// RoundTrip implements http.RoundTripper.
func (c *serverClock) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		offset := time.Until(date)
		// The header has a resolution of one second, and the response took some time.
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

// newMapper returns a RESTMapper for the types that are read as full objects. It makes no requests, so
// it works if discovery fails.
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
