// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestIsFromAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"an error with a reason":    {unavailable, true},
		"an error without a reason": {fmt.Errorf("listing: %w", makeError(http.StatusInternalServerError, "")), true},
		"a connection error":        {errors.New("connection refused"), false},
		"a timeout":                 {context.DeadlineExceeded, false},
	} {
		if got := isFromAPIServer(test.err); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestIsReportedEmpty(t *testing.T) {
	const remaining = "Some resources are remaining: configmaps. has 1 resource instances, " +
		"widgets.widgets.example.com has 2 resource instances"
	type statuses map[corev1.NamespaceConditionType]corev1.ConditionStatus
	succeeded := statuses{
		corev1.NamespaceDeletionDiscoveryFailure: corev1.ConditionFalse, corev1.NamespaceContentRemaining: corev1.ConditionTrue,
		corev1.NamespaceDeletionGVParsingFailure: corev1.ConditionFalse, corev1.NamespaceDeletionContentFailure: corev1.ConditionFalse,
	}
	failed := maps.Clone(succeeded)
	failed[corev1.NamespaceDeletionContentFailure] = corev1.ConditionTrue
	secrets := makeType("", "secrets")
	for name, test := range map[string]struct {
		statuses statuses
		message  string
		of       resourcetypes.Type
		want     bool
	}{
		"not listed":            {succeeded, remaining, secrets, true},
		"listed":                {succeeded, remaining, configMaps, false},
		"listed custom type":    {succeeded, remaining, widgets, false},
		"another group":         {succeeded, remaining, makeType("other.example.com", "widgets"), true},
		"no conditions":         {nil, "", secrets, false},
		"only one condition":    {statuses{corev1.NamespaceContentRemaining: corev1.ConditionTrue}, remaining, secrets, false},
		"possibly truncated":    {succeeded, remaining + strings.Repeat(" ", maxCompleteMessage), secrets, false},
		"some types not listed": {failed, remaining, secrets, false},
	} {
		namespace := wrappers.MakeNamespace("shop")
		for conditionType, status := range test.statuses {
			namespace.Condition(corev1.NamespaceCondition{Type: conditionType, Status: status, Message: test.message})
		}
		facts := &diagnosis.Facts{Namespace: namespace.Obj()}
		if got := isReportedEmpty(facts, test.of); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
