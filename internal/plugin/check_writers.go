// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/installcheck"
	"github.com/nslifecycle/nslifecycle/internal/knownwriters"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// checkKnownWriters returns a result for each installed controller that is known to write into new namespaces.
// In audit mode, the audit log shows all other controllers.
func checkKnownWriters(
	ctx context.Context, api client.Client, set *internalv1alpha1.NamespaceInitializerSet,
) []installcheck.Result {
	const check = "controllers that write into new namespaces"
	installed, err := listAccounts(ctx, api)
	if err != nil {
		return []installcheck.Result{{Check: check, Err: err, IsUnknown: true}}
	}
	var results []installcheck.Result
	for _, writer := range knownwriters.All() {
		for _, account := range writer.ServiceAccounts {
			for _, found := range installed[account.Name] {
				if account.Namespace != "" && account.Namespace != found.Namespace {
					continue
				}
				result := installcheck.Result{Check: fmt.Sprintf("%s (ServiceAccount %s)", writer.Name, found)}
				result.Warning, result.Err = adviceFor(ctx, api, writer, found, set)
				result.IsUnknown = result.Err != nil
				results = append(results, result)
			}
		}
	}
	if len(results) == 0 {
		return []installcheck.Result{{Check: check + ": none is known"}}
	}
	return results
}

// listAccounts returns all ServiceAccounts by name.
func listAccounts(ctx context.Context, api client.Reader) (map[string][]types.NamespacedName, error) {
	var accounts metav1.PartialObjectMetadataList
	accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	if err := api.List(ctx, &accounts); err != nil {
		return nil, fmt.Errorf("failed to list ServiceAccounts: %w", err)
	}
	byName := map[string][]types.NamespacedName{}
	for i := range accounts.Items {
		key := client.ObjectKeyFromObject(&accounts.Items[i])
		byName[key.Name] = append(byName[key.Name], key)
	}
	return byName, nil
}

// adviceFor returns what an administrator should do about a writer, or "" if its writes are admitted.
func adviceFor(
	ctx context.Context, api client.Client, writer knownwriters.Writer, account types.NamespacedName,
	set *internalv1alpha1.NamespaceInitializerSet,
) (string, error) {
	for _, verb := range []string{v1alpha1.VerbProvision, v1alpha1.VerbInitialize} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               serviceaccount.MakeUsername(account.Namespace, account.Name),
			Groups:             serviceaccount.MakeGroupNames(account.Namespace),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "namespaces"},
		}}
		if err := api.Create(ctx, review); err != nil {
			return "", fmt.Errorf("failed to create a SubjectAccessReview: %w", err)
		}
		if review.Status.Allowed {
			return "", nil
		}
	}
	switch writer.Advice {
	case knownwriters.Grant:
		return fmt.Sprintf("until a namespace is initialized, it cannot write %s; to allow it, run: %s", writer.Writes,
			grantCommand(account, set)), nil
	case knownwriters.Exclude:
		selecting, err := findSelecting(ctx, api, writer.Kinds)
		if err != nil || selecting == "" {
			return "", err
		}
		return fmt.Sprintf("it cannot write %s; exclude namespaces with the label %s, for example in %s: %s", writer.Writes,
			v1alpha1.LabelInitializing, selecting, writer.Setting), nil
	}
	return "", nil
}

// grantCommand returns a command that allows a ServiceAccount to write to all initializing namespaces. An initializer
// also needs to change the pending list.
func grantCommand(account types.NamespacedName, set *internalv1alpha1.NamespaceInitializerSet) string {
	role := "nslifecycle-namespace-provisioner"
	isAccount := func(subject v1alpha1.Subject) bool {
		return subject.Kind == v1alpha1.SubjectServiceAccount && subject.Namespace == account.Namespace &&
			subject.Name == account.Name
	}
	isInitializer := func(initializer internalv1alpha1.EffectiveInitializer) bool {
		return slices.ContainsFunc(initializer.Subjects, isAccount)
	}
	if slices.ContainsFunc(set.Initializers, isInitializer) {
		role = "nslifecycle-namespace-initializer"
	}
	binding := fmt.Sprintf("early-writes-%s-%s", account.Namespace, account.Name)
	return shell.Then(
		shell.Command("kubectl create clusterrolebinding %s --clusterrole=%s --serviceaccount=%s",
			binding, role, account.Namespace+":"+account.Name),
		shell.Command("kubectl label clusterrolebinding/%s %s=%s",
			binding, internalv1alpha1.LabelName, internalv1alpha1.Name))
}

// findSelecting returns an object whose spec.target.namespaceSelector does not exclude initializing namespaces, or "".
// An object without target writes nothing.
func findSelecting(ctx context.Context, api client.Reader, kinds []schema.GroupVersionKind) (string, error) {
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := api.List(ctx, list); err != nil {
			if meta.IsNoMatchError(err) {
				continue // The CustomResourceDefinition is not installed.
			}
			return "", fmt.Errorf("failed to list objects of kind %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			var object struct {
				Spec struct {
					Target *struct {
						NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
					} `json:"target"`
				} `json:"spec"`
			}
			name := fmt.Sprintf("%s %q", kind.Kind, list.Items[i].GetName())
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &object); err != nil {
				return "", fmt.Errorf("failed to decode %s: %w", name, err)
			}
			target := object.Spec.Target
			if target != nil && !slices.ContainsFunc(target.NamespaceSelector.MatchExpressions, excludesInitializing) {
				return name, nil
			}
		}
	}
	return "", nil
}

func excludesInitializing(requirement metav1.LabelSelectorRequirement) bool {
	return requirement.Key == v1alpha1.LabelInitializing && requirement.Operator == metav1.LabelSelectorOpDoesNotExist
}
