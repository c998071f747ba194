// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// ServePatience is how long an initializer may have its turn without a sign of life before the
// configurations that name it say so.
const ServePatience = time.Minute

// Service is what is known of whether somebody does the work of the initializers.
type Service struct {
	// IsPossible says that somebody but the control plane and cluster administrators may.
	IsPossible bool
	// WhyUnknown says why that is not known, or is empty.
	WhyUnknown string
	// Neglected are the initializers that have not acted, by name.
	Neglected map[string]Neglect
}

// Neglect is what an initializer that does not act leaves waiting.
type Neglect struct {
	// Namespace is the one that has waited for longest, since then.
	Namespace string
	Since     time.Time
	// Count is how many there are.
	Count int
}

// Neglected returns the initializers that have had their turn for ServePatience and have neither
// removed their name nor said anything about themselves. One that has said something lives, and
// may well need long.
func Neglected(namespaces []corev1.Namespace, now time.Time) map[string]Neglect {
	neglected := map[string]Neglect{}
	for i := range namespaces {
		namespace := &namespaces[i]
		state := Observe(namespace)
		if state.Stage != StagePending || namespace.DeletionTimestamp != nil {
			continue
		}
		name := state.Pending[0]
		since := turnSince(namespace, state)
		if since.IsZero() || now.Sub(since) < ServePatience || hasSpoken(namespace, name) {
			continue
		}
		neglect, isKnown := neglected[name]
		neglect.Count++
		isOlder := since.Before(neglect.Since) || (since.Equal(neglect.Since) && namespace.Name < neglect.Namespace)
		if !isKnown || isOlder {
			neglect.Namespace, neglect.Since = namespace.Name, since
		}
		neglected[name] = neglect
	}
	return neglected
}

// turnSince returns when the turn of the first initializer began, as far as conditions tell;
// zero where the operator has not seen the Namespace yet.
func turnSince(namespace *corev1.Namespace, state State) time.Time {
	whole := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
	if whole == nil || whole.Status != corev1.ConditionTrue {
		return time.Time{}
	}
	since := whole.LastTransitionTime.Time
	for _, name := range state.All {
		if slices.Contains(state.Pending, name) {
			continue
		}
		done := nscondition.Find(namespace, corev1.NamespaceConditionType(name+v1alpha1.ConditionInitializedSuffix))
		if done != nil && done.LastTransitionTime.After(since) {
			since = done.LastTransitionTime.Time
		}
	}
	return since
}

// hasSpoken tells whether the condition of an initializer has words of its own.
func hasSpoken(namespace *corev1.Namespace, name string) bool {
	condition := nscondition.Find(namespace,
		corev1.NamespaceConditionType(name+v1alpha1.ConditionInitializedSuffix))
	return condition != nil && !isReason(condition.Reason)
}

// ServedCondition computes the condition Served of one configuration.
func ServedCondition(
	configuration *v1alpha1.NamespaceInitializerConfiguration, service Service,
) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionFalse, ObservedGeneration: configuration.Generation,
	}
	var names, complaints []string
	for _, initializer := range configuration.Initializers {
		names = append(names, initializer.Name)
		if neglect, isNeglected := service.Neglected[initializer.Name]; isNeglected {
			complaints = append(complaints, neglect.complaint(initializer.Name))
		}
	}
	switch {
	case len(names) == 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonHealthy
		condition.Message = "this configuration names no initializer"
	case service.WhyUnknown == "" && !service.IsPossible:
		condition.Reason = v1alpha1.ReasonInitializerUnauthorized
		condition.Message = fmt.Sprintf("nobody but the control plane and cluster administrators may do the work of %s: "+
			"create a ClusterRole with the verbs get, list, watch, patch and %s on namespaces, and a ClusterRoleBinding "+
			"of it to whoever runs the initializer; a Role or a RoleBinding does not count",
			Enumerate(names), v1alpha1.VerbInitialize)
	case len(complaints) > 0:
		condition.Reason = v1alpha1.ReasonInitializerUnresponsive
		condition.Message = strings.Join(complaints, "; ")
	case service.WhyUnknown != "":
		condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonAuthorizationUnknown
		condition.Message = "it is not known who may do the work of the initializers: " + service.WhyUnknown
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonHealthy
		condition.Message = fmt.Sprintf("somebody may do the work, and no namespace has waited for longer than %s "+
			"without a sign of life", ServePatience)
	}
	return condition
}

func (n Neglect) complaint(name string) string {
	others := ""
	if n.Count > 1 {
		others = fmt.Sprintf(", and in %d more", n.Count-1)
	}
	return fmt.Sprintf("%s has had its turn in namespace %q since %s%s, and has neither removed its name nor said "+
		"anything: see whether its controller runs", name, n.Namespace, n.Since.UTC().Format(time.RFC3339), others)
}
