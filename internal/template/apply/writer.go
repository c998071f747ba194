// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// mapperResetInterval limits how often an unknown kind triggers a new discovery.
const mapperResetInterval = 5 * time.Second

// Writer sends the requests for the objects of templates. It impersonates the ServiceAccount of the
// template in each request.
type Writer struct {
	config          *rest.Config
	mapper          meta.ResettableRESTMapper
	discovery       discovery.DiscoveryInterfaceWithContext
	systemNamespace string
	clock           clock.PassiveClock
	dryRuns         *dryrun.Guard

	mutex   sync.Mutex
	clients map[string]impersonated
	resetAt time.Time
}

// impersonated has the clients for one ServiceAccount.
type impersonated struct {
	metadata metadata.Interface
	content  dynamic.Interface
	// raw returns responses as they are.
	raw rest.Interface
}

// NewWriter returns a Writer. The ServiceAccounts of templates are in the system namespace.
func NewWriter(
	config *rest.Config, mapper meta.ResettableRESTMapper, discoveryClient discovery.DiscoveryInterfaceWithContext,
	systemNamespace string, now clock.PassiveClock, dryRuns *dryrun.Guard,
) *Writer {
	return &Writer{
		config: config, mapper: mapper, discovery: discoveryClient, systemNamespace: systemNamespace, clock: now,
		dryRuns: dryRuns, clients: map[string]impersonated{},
	}
}

// as returns the clients that impersonate a ServiceAccount.
func (w *Writer) as(serviceAccount string) (impersonated, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if clients, ok := w.clients[serviceAccount]; ok {
		return clients, nil
	}
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: serviceaccount.MakeUsername(w.systemNamespace, serviceAccount),
	}
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return statusTransport{next} })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return impersonated{}, fmt.Errorf("failed to create a client for ServiceAccount %q: %w", serviceAccount, err)
	}
	content, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return impersonated{}, fmt.Errorf("failed to create a client for ServiceAccount %q: %w", serviceAccount, err)
	}
	objects, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), httpClient)
	if err != nil {
		return impersonated{}, fmt.Errorf("failed to create a client for ServiceAccount %q: %w", serviceAccount, err)
	}
	raw, err := rest.UnversionedRESTClientForConfigAndClient(dynamic.ConfigFor(config), httpClient)
	if err != nil {
		return impersonated{}, fmt.Errorf("failed to create a client for ServiceAccount %q: %w", serviceAccount, err)
	}
	clients := impersonated{metadata: objects, content: content, raw: raw}
	w.clients[serviceAccount] = clients
	return clients, nil
}

// ResourceOf returns the resource of a namespaced kind, in the preferred version if the kind has none.
func (w *Writer) ResourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	resource, err := template.ResourceOf(w.mapper, kind)
	// A CustomResourceDefinition can have been created since the last discovery, or replaced by one with another scope.
	var known *template.ReasonError
	if errors.As(err, &known) && w.reset() {
		resource, err = template.ResourceOf(w.mapper, kind)
	}
	return resource, err
}

// confirmUnserved returns an error unless the API server serves no version of a kind that the mapper lacks. The
// mapper also lacks the kinds of an aggregated API server that is unavailable.
func (w *Writer) confirmUnserved(ctx context.Context, kind schema.GroupKind) error {
	group := metav1.APIGroup{Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "v1"}}}
	if kind.Group != "" {
		// The list of all groups can lack a group whose discovery is not complete.
		group = metav1.APIGroup{}
		err := w.discovery.RESTClient().Get().AbsPath("/apis", kind.Group).Do(ctx).Into(&group)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("failed to discover group %q: %w", kind.Group, err)
		}
	}
	for _, version := range group.Versions {
		list, err := w.discovery.ServerResourcesForGroupVersionWithContext(ctx, version.GroupVersion)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("failed to discover kind %q: %w", kind.Kind, err)
		case slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind }):
			return plan.ErrUnconfirmed
		}
	}
	return nil
}

// reset repeats the discovery of kinds unless it is recent.
func (w *Writer) reset() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.clock.Since(w.resetAt) < mapperResetInterval {
		return false
	}
	w.resetAt = w.clock.Now()
	w.mapper.Reset()
	return true
}

// resetIfUnserved repeats the discovery, and returns true, if the API server does not serve a resource any more.
func (w *Writer) resetIfUnserved(err error) bool {
	isUnserved := apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if isUnserved {
		w.reset()
	}
	return isUnserved
}

// target is an object that a request concerns.
type target struct {
	template  *v1alpha1.NamespaceTemplate
	namespace *corev1.Namespace
	manifest  *unstructured.Unstructured
	isLocked  bool
	// resourceVersion is the version that must be changed; empty if any.
	resourceVersion string
}

// request is a PATCH request for an object.
type request struct {
	impersonated
	resource  schema.GroupVersionResource
	namespace string
	name      string
	// manifest is what the body contains.
	manifest *unstructured.Unstructured
	body     []byte
}

// prepare checks a manifest, whatever it was rendered from, and returns the request that applies it.
func (w *Writer) prepare(target target) (request, error) {
	manifest := target.manifest
	if err := render.CheckManifest(manifest, target.namespace.Name); err != nil {
		return request{}, template.Problemf(v1alpha1.ReasonInvalidObject, "%w", err)
	}
	resource, err := w.ResourceOf(manifest.GroupVersionKind())
	if err != nil {
		return request{}, err
	}
	clients, err := w.as(target.template.Spec.ServiceAccountName)
	if err != nil {
		return request{}, err
	}
	manifest = template.WithOwnMetadata(target.template.Name, target.namespace, manifest, target.isLocked)
	if target.resourceVersion != "" {
		manifest.SetResourceVersion(target.resourceVersion)
	}
	body, err := encode(manifest)
	if err != nil {
		return request{}, fmt.Errorf("failed to encode %s %q: %w", manifest.GetKind(), manifest.GetName(), err)
	}
	return request{
		impersonated: clients, resource: resource, namespace: target.namespace.Name, name: manifest.GetName(),
		manifest: manifest, body: body,
	}, nil
}

// encode returns the body of a server-side apply. The API server decodes it as YAML, which rejects control
// characters and replaces line breaks, such as U+0085, that JSON permits within strings.
func encode(object any) ([]byte, error) {
	body, err := json.Marshal(object)
	return []byte(printable.YAML(string(body))), err
}

// statusTransport stores the status codes of responses in the contexts of the requests.
type statusTransport struct{ next http.RoundTripper }

// statusKey is the key of the status code, an *int, in a context.
type statusKey struct{}

func (t statusTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if code, ok := request.Context().Value(statusKey{}).(*int); ok && err == nil {
		*code = response.StatusCode
	}
	return response, err
}

// applied is the response to the application of a manifest.
type applied struct {
	*metav1.PartialObjectMetadata
	// existed is true if the object existed before.
	existed bool
	// different are the fields of the manifest that the object does not contain.
	different []string
}

// apply applies a manifest. It overrides other clients if isForced is true.
func (w *Writer) apply(ctx context.Context, target target, isForced, isDryRun bool) (applied, error) {
	prepared, err := w.prepare(target)
	if err != nil {
		return applied{}, err
	}
	options := metav1.PatchOptions{FieldManager: template.FieldManager(target.template.Name), Force: &isForced}
	if isDryRun {
		if options.DryRun, err = w.dryRuns.Option(ctx, prepared.resource.GroupVersion()); err != nil {
			return applied{}, err
		}
	}
	var code int
	result := prepared.raw.Patch(types.ApplyPatchType).AbsPath(prepared.path()...).
		SetHeader("Accept", runtime.ContentTypeJSON).
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.Unversioned).Body(prepared.body).
		Do(ctx).StatusCode(&code)
	if err := result.Error(); err != nil { // Raw would return the error without the details in the response.
		w.resetIfUnserved(err)
		return applied{}, err
	}
	body, err := result.Raw()
	if err != nil {
		return applied{}, err
	}
	response, content := &metav1.PartialObjectMetadata{}, &unstructured.Unstructured{}
	if err := errors.Join(json.Unmarshal(body, response), content.UnmarshalJSON(body)); err != nil {
		return applied{}, fmt.Errorf("failed to decode %s %q: %w", prepared.manifest.GetKind(), prepared.name, err)
	}
	return applied{
		PartialObjectMetadata: response, existed: code != http.StatusCreated,
		different: plan.Differences(prepared.manifest, content, target.template.Name),
	}, nil
}

// path returns the parts of the URL of the object.
func (r request) path() []string {
	prefix := []string{"/apis", r.resource.Group}
	if r.resource.Group == "" {
		prefix = []string{"/api"}
	}
	return append(prefix, r.resource.Version, "namespaces", r.namespace, r.resource.Resource, r.name)
}

// preview returns what apply would write, and the fields of the manifest that it would not contain.
func (w *Writer) preview(
	ctx context.Context, target target,
) (preview *unstructured.Unstructured, different []string, err error) {
	prepared, err := w.prepare(target)
	if err != nil {
		return nil, nil, err
	}
	preview, err = w.dryRun(ctx, prepared, types.ApplyPatchType, metav1.PatchOptions{
		FieldManager: template.FieldManager(target.template.Name), Force: ptr.To(true),
	})
	if err != nil {
		return nil, nil, err
	}
	return preview, plan.Differences(prepared.manifest, preview, target.template.Name), nil
}

// DryRun determines whether the ServiceAccount of a template may apply a manifest.
func (w *Writer) DryRun(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace,
	manifest *unstructured.Unstructured,
) error {
	_, _, err := w.preview(ctx, target{template: tmpl, namespace: namespace, manifest: manifest})
	return err
}

// previewUnchanged returns the object in the cluster. It requires only the permission to patch the object.
func (w *Writer) previewUnchanged(ctx context.Context, target target) (*unstructured.Unstructured, error) {
	prepared, err := w.prepare(target)
	if err != nil {
		return nil, err
	}
	prepared.body = []byte("{}")
	return w.dryRun(ctx, prepared, types.MergePatchType, metav1.PatchOptions{})
}

func (w *Writer) dryRun(
	ctx context.Context, r request, patch types.PatchType, options metav1.PatchOptions,
) (_ *unstructured.Unstructured, err error) {
	if options.DryRun, err = w.dryRuns.Option(ctx, r.resource.GroupVersion()); err != nil {
		return nil, err
	}
	return r.content.Resource(r.resource).Namespace(r.namespace).Patch(ctx, r.name, patch, r.body, options)
}

// release removes the fields that only another template has set on an object.
func (w *Writer) release(
	ctx context.Context, target target, from string,
) (*metav1.PartialObjectMetadata, error) {
	manifest := target.manifest
	resource, err := w.ResourceOf(manifest.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	clients, err := w.as(target.template.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	empty := &metav1.PartialObjectMetadata{}
	empty.SetGroupVersionKind(manifest.GroupVersionKind())
	empty.Name = manifest.GetName()
	empty.Annotations = map[string]string{v1alpha1.AnnotationNamespaceUID: string(target.namespace.UID)}
	body, err := encode(empty)
	if err != nil {
		return nil, fmt.Errorf("failed to encode %s %q: %w", manifest.GetKind(), manifest.GetName(), err)
	}
	return clients.metadata.Resource(resource).Namespace(target.namespace.Name).
		Patch(ctx, manifest.GetName(), types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: template.FieldManager(from)})
}

// delete deletes an object. It reports whether the object does not exist any more: finalizers, and the grace
// period of Pods, can delay that.
func (w *Writer) delete(
	ctx context.Context, serviceAccount, namespace string, kind schema.GroupVersionKind, name string,
	preconditions metav1.Preconditions,
) (isGone bool, err error) {
	resource, err := w.ResourceOf(kind)
	if err != nil {
		return false, err
	}
	clients, err := w.as(serviceAccount)
	if err != nil {
		return false, err
	}
	var code int
	err = clients.metadata.Resource(resource).Namespace(namespace).
		Delete(context.WithValue(ctx, statusKey{}, &code), name, metav1.DeleteOptions{
			Preconditions: &preconditions,
			// It means the same as the propagation policy Background. Only with it, the status code shows whether the
			// object still exists.
			OrphanDependents: ptr.To(false), //nolint:staticcheck // There is no other way that needs no request.
		})
	switch {
	case w.resetIfUnserved(err): // The API server can serve the object in another version.
		return false, err
	case nsobject.IsNotFound(err):
		return true, nil
	}
	return code != http.StatusAccepted, err
}
