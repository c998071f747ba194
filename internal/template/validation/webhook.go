// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation has the admission webhook for NamespaceTemplates.
package validation

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// validatorPath is the path of the webhook in config/webhook.
const validatorPath = "/templates"

// Limits of what the peers of the webhook, who are not authenticated, can make the operator do.
const (
	// maxValidations is the number of concurrent validations. Each compiles at most what render.Compile permits,
	// in about a second.
	maxValidations = 1
	// maxLookups and lookupBurst limit the requests for ServiceAccounts and schemas per second.
	maxLookups, lookupBurst = 10, 50
)

// Validator is the admission webhook for NamespaceTemplates. It returns the errors that ConditionValid
// reports later, so that the author sees them immediately, and those of kinds that are not namespaced. It warns of a
// missing ServiceAccount, and of kinds and keys that are unknown. The webhook configuration selects no requests that
// leave the spec unchanged.
type Validator struct {
	// resourceOf returns the resource of a namespaced kind.
	resourceOf func(kind schema.GroupVersionKind) (schema.GroupVersionResource, error)
	// live reads from the API server.
	live client.Reader
	// openAPI reads the OpenAPI documents of the API server.
	openAPI         rest.Interface
	systemNamespace string
	validations     chan struct{}
	lookups         *rate.Limiter
}

// NewValidator returns a Validator.
func NewValidator(
	resourceOf func(kind schema.GroupVersionKind) (schema.GroupVersionResource, error), live client.Reader,
	openAPI rest.Interface, systemNamespace string,
) *Validator {
	return &Validator{
		resourceOf: resourceOf, live: live, openAPI: openAPI, systemNamespace: systemNamespace,
		validations: make(chan struct{}, maxValidations), lookups: rate.NewLimiter(maxLookups, lookupBurst),
	}
}

// Register registers the webhook at a server.
func (v *Validator) Register(server *webhooks.Server) {
	server.Register(webhooks.Webhook{Path: validatorPath, Fields: webhooks.Fields{"object": nil}, Handle: v.Handle})
}

// Handle implements webhooks.Webhook.
func (v *Validator) Handle(ctx context.Context, request *webhooks.Request) (*admissionv1.AdmissionResponse, error) {
	select {
	case v.validations <- struct{}{}:
		defer func() { <-v.validations }()
	case <-ctx.Done():
		return nil, fmt.Errorf("failed to validate NamespaceTemplate %q: %w", request.Name, ctx.Err())
	}
	request.Serving()
	// The API server has validated the metadata.
	tmpl := struct {
		Spec v1alpha1.NamespaceTemplateSpec `json:"spec"`
	}{}
	if err := json.Unmarshal(request.Object, &tmpl); err != nil {
		return nil, fmt.Errorf("failed to decode NamespaceTemplate %q: %w", request.Name, err)
	}
	warnings, errs := v.validate(ctx, &tmpl.Spec)
	response := &admissionv1.AdmissionResponse{Allowed: len(errs) == 0, Warnings: warnings}
	if len(errs) > 0 {
		kind := v1alpha1.GroupVersion.WithKind("NamespaceTemplate").GroupKind()
		response.Result = ptr.To(apierrors.NewInvalid(kind, request.Name, errs).Status())
	}
	return response, nil
}

func (v *Validator) validate(
	ctx context.Context, spec *v1alpha1.NamespaceTemplateSpec,
) (warnings []string, errs field.ErrorList) {
	if warning := v.checkServiceAccount(ctx, spec.ServiceAccountName); warning != "" {
		warnings = append(warnings, warning)
	}
	if _, errs = render.Compile(spec); len(spec.Objects) > render.MaxObjects {
		return warnings, errs
	}
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	schemas := &schemaReader{Validator: v, documents: map[schema.GroupVersion]*document{}}
	for i, object := range spec.Objects {
		path := field.NewPath("spec", "objects").Index(i).Child("template")
		manifest, ok := template.ManifestOf(object)
		if !ok {
			continue
		}
		kind := manifest.GroupVersionKind()
		_, err := v.resourceOf(kind)
		var known *template.ReasonError
		switch {
		case errors.As(err, &known) && known.Reason == v1alpha1.ReasonInvalidObject: // It is not namespaced.
			errs = append(errs, field.Invalid(path.Child("kind"), kind.Kind, err.Error()))
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("%s: %v", path, err))
		default:
			if keys := schemas.unknownKeys(ctx, manifest); keys != "" {
				warnings = append(warnings, fmt.Sprintf("%s: %s", path, keys))
			}
		}
	}
	return warnings, errs
}

// checkServiceAccount returns a warning if the ServiceAccount does not exist, unless there have been many requests.
// The operator may list ServiceAccounts, but not get them.
func (v *Validator) checkServiceAccount(ctx context.Context, name string) string {
	if !v.lookups.Allow() {
		return ""
	}
	accounts := &metav1.PartialObjectMetadataList{}
	accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	err := v.live.List(ctx, accounts, client.InNamespace(v.systemNamespace),
		client.MatchingFields{metav1.ObjectNameField: name}, client.Limit(1))
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "Failed to list ServiceAccounts", "name", name)
		return ""
	case len(accounts.Items) > 0:
		return ""
	}
	return fmt.Sprintf("ServiceAccount %q does not exist in namespace %q", name, v.systemNamespace)
}
