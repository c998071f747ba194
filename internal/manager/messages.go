// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"strconv"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
)

// Remedies for resource types that the API server does not serve.
const (
	messageInstallDefinitions = "the CustomResourceDefinitions are not installed; run: " + policies.InstallCommand
	messageUpgradeServer      = "the API server is too old, or its flag --runtime-config disables the type; " +
		"use Kubernetes 1.33 or later"
)

const messageTemplatesRequireInitialization = "controller templates requires controller initialization"

const messageCachesNotSynced = "the caches have not synced with the API server yet"

func messageUnknownController(name string) string {
	return "unknown controller " + strconv.Quote(name) + ": specify a comma-separated list of " +
		strings.Join(allControllers, ", ") + "; the prefix - disables a controller, and * enables all"
}

func messageNoController(text string) string {
	return "the list of controllers " + strconv.Quote(text) + " enables no controller"
}
