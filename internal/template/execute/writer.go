// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Writer sends the requests for the objects of templates. It impersonates the ServiceAccount of the
// template in each request.
type Writer struct {
	Config  *rest.Config
	Kinds   *observe.Kinds
	DryRuns *dryrun.Guard
	// IsUser is true in a preview: the user in Config sends the requests, without impersonating a ServiceAccount.
	IsUser bool
	// SystemNamespace is the namespace of the ServiceAccounts.
	SystemNamespace string

	mutex   sync.Mutex
	clients map[string]*rest.RESTClient
}

// as returns the client that impersonates a ServiceAccount. It returns responses as they are, with their status codes.
func (w *Writer) as(serviceAccount string) (*rest.RESTClient, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if known, ok := w.clients[serviceAccount]; ok {
		return known, nil
	}
	config := dynamic.ConfigFor(w.Config)
	config.WarningHandler = rest.NoWarnings{}
	if !w.IsUser {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: serviceaccount.MakeUsername(w.SystemNamespace, serviceAccount),
		}
	}
	added, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create a client for ServiceAccount %q: %w", serviceAccount, err)
	}
	template.Put(&w.clients, serviceAccount, added)
	return added, nil
}

// ResourceOf returns the resource of a namespaced kind, in the preferred version if the kind has none.
func (w *Writer) ResourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return w.Kinds.ResourceOf(kind)
}

// DryRun determines whether the ServiceAccount of a template may apply a manifest.
func (w *Writer) DryRun(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace,
	manifest *unstructured.Unstructured,
) error {
	if err := render.CheckManifest(manifest, namespace.Name); err != nil {
		return template.Problemf(v1alpha1.ReasonInvalidObject, "%w", err)
	}
	return w.Patch(ctx, tmpl.Spec.ServiceAccountName, namespace.Name, plan.Request{
		Verb: plan.Apply, Kind: manifest.GroupVersionKind(), Name: manifest.GetName(), IsForced: true, IsDryRun: true,
		Manifest:     template.WithOwnMetadata(tmpl.Name, namespace, manifest, false),
		FieldManager: template.FieldManager(tmpl.Name),
	}).Err
}

// setMetadata changes labels and annotations of a Namespace.
func (w *Writer) setMetadata(
	ctx context.Context, serviceAccount string, namespace *corev1.Namespace, request plan.Request,
) (*metav1.PartialObjectMetadata, error) {
	changes := nsobject.Preconditions(namespace, request.ResourceVersion)
	for field, kind := range map[string]string{
		"labels": template.KindLabel.Kind, "annotations": template.KindAnnotation.Kind,
	} {
		if values := request.Changes.Of(kind); len(values) > 0 {
			changes[field] = values
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return nil, fmt.Errorf("failed to encode the metadata of namespace %q: %w", namespace.Name, err)
	}
	patched := target{corev1.SchemeGroupVersion.WithResource("namespaces"), "", namespace.Name}
	response := w.patch(
		ctx, serviceAccount, patched, types.MergePatchType, body, metav1.PatchOptions{FieldManager: request.FieldManager})
	return response.Metadata, response.Err
}

// Patch sends a request that applies, reads or changes an object in a namespace.
func (w *Writer) Patch(
	ctx context.Context, serviceAccount, namespace string, request plan.Request,
) plan.Response {
	patch, content, options := types.MergePatchType, any(map[string]any{}), metav1.PatchOptions{}
	switch request.Verb {
	case plan.Apply:
		patch, content = types.ApplyPatchType, request.Manifest
		options = metav1.PatchOptions{FieldManager: request.FieldManager, Force: &request.IsForced}
	case plan.Read: // It requires only the permission to patch the object.
		request.IsDryRun = true
	case plan.SetManagers:
		changes := map[string]any{"managedFields": request.Managers}
		if request.ResourceVersion != "" {
			changes["resourceVersion"] = request.ResourceVersion
		}
		content = map[string]any{"metadata": changes}
	}
	body, err := json.Marshal(content)
	if err != nil {
		return plan.Response{Err: fmt.Errorf("failed to encode %s %q: %w", request.Kind.Kind, request.Name, err)}
	}
	if patch == types.ApplyPatchType {
		// The API server decodes the body as YAML, which rejects control characters and replaces line breaks, such as
		// U+0085, that JSON permits within strings.
		body = []byte(printable.YAML(string(body)))
	}
	resource, err := w.ResourceOf(request.Kind)
	if err == nil && request.IsDryRun {
		options.DryRun, err = w.DryRuns.Option(ctx, resource.GroupVersion())
	}
	if err != nil {
		return plan.Response{Err: err}
	}
	return w.patch(ctx, serviceAccount, target{resource, namespace, request.Name}, patch, body, options)
}

// target is the object of a request. The namespace is empty if the object is cluster-scoped.
type target struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// in returns a request for the object.
func (t target) in(request *rest.Request) *rest.Request {
	prefix := "/apis/" + t.resource.GroupVersion().String()
	if t.resource.Group == "" {
		prefix = "/api/" + t.resource.Version
	}
	return request.AbsPath(prefix).NamespaceIfScoped(t.namespace, t.namespace != "").Resource(t.resource.Resource).
		Name(t.name)
}

// patch patches an object, and returns it with its metadata as they are in the response.
func (w *Writer) patch(
	ctx context.Context, serviceAccount string, patched target, patch types.PatchType, body []byte,
	options metav1.PatchOptions,
) plan.Response {
	impersonating, err := w.as(serviceAccount)
	if err != nil {
		return plan.Response{Err: err}
	}
	var code int
	result := patched.in(impersonating.Patch(patch)).SetHeader("Accept", runtime.ContentTypeJSON).
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.Unversioned).Body(body).
		Do(ctx).StatusCode(&code)
	if err := result.Error(); err != nil { // Raw would return the error without the details in the response.
		w.Kinds.ResetIfUnserved(err)
		return plan.Response{Err: err}
	}
	response := plan.Response{
		Metadata: &metav1.PartialObjectMetadata{}, Object: &unstructured.Unstructured{},
		IsCreated: code == http.StatusCreated,
	}
	content, err := result.Raw()
	err = errors.Join(err, json.Unmarshal(content, response.Metadata), response.Object.UnmarshalJSON(content))
	if err != nil {
		return plan.Response{Err: fmt.Errorf("failed to decode %s %q: %w", patched.resource.Resource, patched.name, err)}
	}
	return response
}

// delete deletes an object. It reports whether the object does not exist any more: finalizers, and the grace
// period of Pods, can delay that.
func (w *Writer) delete(
	ctx context.Context, serviceAccount, namespace string, request plan.Request,
) (isGone bool, err error) {
	resource, err := w.ResourceOf(request.Kind)
	if err != nil {
		return false, err
	}
	impersonating, err := w.as(serviceAccount)
	if err != nil {
		return false, err
	}
	options := metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &request.UID},
		// It means the same as the propagation policy Background. Only with it, the status code shows whether the
		// object still exists.
		OrphanDependents: ptr.To(false), //nolint:staticcheck // There is no other way that needs no request.
	}
	if request.ResourceVersion != "" {
		options.Preconditions.ResourceVersion = &request.ResourceVersion
	}
	var code int
	err = target{resource, namespace, request.Name}.in(impersonating.Delete()).Body(&options).Do(ctx).
		StatusCode(&code).Error()
	switch {
	case w.Kinds.ResetIfUnserved(err): // The API server can serve the object in another version.
		return false, err
	case nsobject.IsNotFound(err):
		return true, nil
	}
	return code != http.StatusAccepted, err
}
