// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// validatorPath is the path of the webhook in config/hold.
const validatorPath = "/templates"

// Validator is the admission webhook for NamespaceTemplates. It returns the errors that ConditionValid
// reports later, so that the author sees them immediately, and those of kinds that are not namespaced. The
// webhook configuration selects no requests that leave the spec unchanged.
type Validator struct {
	Writer *Writer
	// Live reads from the API server.
	Live            client.Reader
	SystemNamespace string
}

// Register registers the webhook at a server.
func (v *Validator) Register(server webhook.Server, scheme *runtime.Scheme) {
	server.Register(validatorPath, admission.WithValidator[*v1alpha1.NamespaceTemplate](scheme, v))
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(
	ctx context.Context, template *v1alpha1.NamespaceTemplate,
) (admission.Warnings, error) {
	var warnings admission.Warnings
	if warning := v.checkServiceAccount(ctx, template.Spec.ServiceAccountName); warning != "" {
		warnings = append(warnings, warning)
	}
	_, errs := render.Compile(&template.Spec)
	for i, object := range template.Spec.Objects {
		path := field.NewPath("spec", "objects").Index(i).Child("template")
		warning, err := v.checkKind(path, object)
		if warning != "" {
			warnings = append(warnings, warning)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		kind := v1alpha1.GroupVersion.WithKind("NamespaceTemplate").GroupKind()
		return warnings, apierrors.NewInvalid(kind, template.Name, errs)
	}
	return warnings, nil
}

// ValidateUpdate implements admission.Validator.
func (v *Validator) ValidateUpdate(
	ctx context.Context, _, template *v1alpha1.NamespaceTemplate,
) (admission.Warnings, error) {
	return v.ValidateCreate(ctx, template)
}

// ValidateDelete implements admission.Validator.
func (v *Validator) ValidateDelete(context.Context, *v1alpha1.NamespaceTemplate) (admission.Warnings, error) {
	return nil, nil
}

// checkServiceAccount returns a warning if the ServiceAccount does not exist. The operator may list
// ServiceAccounts, but not get them.
func (v *Validator) checkServiceAccount(ctx context.Context, name string) string {
	accounts := &metav1.PartialObjectMetadataList{}
	accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	err := v.Live.List(ctx, accounts, client.InNamespace(v.SystemNamespace),
		client.MatchingFields{metav1.ObjectNameField: name}, client.Limit(1))
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "Failed to list ServiceAccounts", "name", name)
		return ""
	case len(accounts.Items) > 0:
		return ""
	}
	return fmt.Sprintf("ServiceAccount %q does not exist in namespace %q", name, v.SystemNamespace)
}

// checkKind returns an error if the kind of an object is not namespaced, and a warning if it is unknown.
func (v *Validator) checkKind(path *field.Path, object v1alpha1.TemplateObject) (string, *field.Error) {
	kind, ok := kindOf(object)
	if !ok {
		return "", nil
	}
	_, err := v.Writer.mapping(kind)
	var known *problem
	if errors.As(err, &known) && known.reason == ReasonInvalidObject {
		return "", field.Invalid(path.Child("kind"), kind.Kind, err.Error())
	}
	if err != nil {
		return fmt.Sprintf("%s: %v", path, err), nil
	}
	return "", nil
}
