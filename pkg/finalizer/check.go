// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// MissingRightsError says that the identity of a program lacks rights.
type MissingRightsError struct {
	// Missing are the rights, such as "update namespaces/finalize".
	Missing []string
	message string
}

// Error says what is missing, and has the commands that give it.
func (e *MissingRightsError) Error() string { return e.message }

// rights are what an agent cannot do without.
var rights = []workrunner.Right{
	{Verb: "get"}, {Verb: "list"}, {Verb: "watch"}, {Verb: "update", Subresource: "finalize"},
}

// Check returns what is wrong with serving a token with the identity of a configuration: the
// token is none, or rights are missing, which is a *MissingRightsError. Add does it when the
// manager starts, and logs what it finds.
func Check(ctx context.Context, config *rest.Config, token corev1.FinalizerName) error {
	if err := workrunner.ValidateToken(token); err != nil {
		return err
	}
	c, err := workrunner.Connect(config)
	if err != nil {
		return err
	}
	return checkRights(ctx, c, token)
}

func checkRights(ctx context.Context, c client.Client, token corev1.FinalizerName) error {
	err := workrunner.CheckRights(ctx, c, roleName(token), rights)
	var missing *workrunner.MissingRights
	if errors.As(err, &missing) {
		return &MissingRightsError{Missing: missing.Missing, message: missing.Message}
	}
	return err
}

// logCheck stops nothing: rights may come later.
func logCheck(ctx context.Context, c client.Client, token corev1.FinalizerName) {
	if err := checkRights(ctx, c, token); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).WithName("agent").Error(err, "Namespaces with the token cannot be released", "token", token)
	}
}

// roleName is the name of a ClusterRole for an agent.
func roleName(token corev1.FinalizerName) string {
	return "agent:" + strings.ReplaceAll(string(token), "/", ":")
}
