// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// MaxChecked limits both the number of ServiceAccounts and the number of permissions to check.
const MaxChecked = 20

// ExternalFinalizers returns the overdue finalizers and namespace finalizers that Kubernetes itself
// does not remove, with the objects that have them.
func ExternalFinalizers(facts *diagnosis.Facts) map[string][]diagnosis.RemainingObject {
	result := map[string][]diagnosis.RemainingObject{}
	for finalizer, objects := range facts.OverdueByFinalizer() {
		if known, ok := Known(finalizer, objects); !ok || !known.IsBuiltIn() {
			result[finalizer] = objects
		}
	}
	for _, name := range append(facts.ExternalNamespaceFinalizers(), facts.Namespace.Finalizers...) {
		if _, ok := result[name]; !ok {
			result[name] = nil
		}
	}
	return result
}

// AccessReview is a request to check whether a ServiceAccount may change the objects of a type.
type AccessReview struct {
	ServiceAccount types.NamespacedName
	Type           resourcetypes.Type
}

// AccessReviewsNeeded returns the access reviews for the ServiceAccounts of possible owners.
func AccessReviewsNeeded(facts *diagnosis.Facts) []AccessReview {
	var reviews []AccessReview
	add := func(account types.NamespacedName, objects []diagnosis.RemainingObject) {
		for _, object := range objects {
			isDuplicate := slices.ContainsFunc(reviews, func(other AccessReview) bool {
				return other.ServiceAccount == account && other.Type.GroupVersionResource == object.GroupVersionResource
			})
			if !isDuplicate && len(reviews) < MaxChecked {
				reviews = append(reviews, AccessReview{account, object.Type})
			}
		}
	}
	for finalizer, all := range diagnosis.Sorted(ExternalFinalizers(facts)) {
		for _, objects := range GroupByOwner(finalizer, all) {
			for _, workload := range Find(facts, finalizer, objects).Workloads {
				add(workload.ServiceAccount, objects)
			}
		}
	}
	return reviews
}

// ServiceAccountsNeeded returns the ServiceAccounts of possible owners.
func ServiceAccountsNeeded(facts *diagnosis.Facts) []types.NamespacedName {
	names := InitializerAccounts(facts)
	for _, objects := range diagnosis.Sorted(ExternalFinalizers(facts)) {
		for _, account := range Controllers(facts, objects) {
			if !slices.Contains(names, account.Name) && len(names) < MaxChecked {
				names = append(names, account.Name)
			}
		}
	}
	return names
}
