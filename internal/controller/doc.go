// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller holds the reconcilers: thin wiring between the API server and
// the pure rules of the domain packages.
//
//   - [ConfigurationReconciler] merges all NamespaceInitializerConfigurations into
//     NamespaceInitializerSet/effective, finds out whether the API server acts on
//     it, and says so in each configuration's Active condition.
//   - [NamespaceReconciler] tells on every Namespace how far its initialization
//     has come, and deletes a Namespace whose initialization failed. Where the API
//     server cannot, it gives new Namespaces their list ([Injector]).
//   - [FinalizationReconciler] empties every Namespace that is being deleted and
//     releases its own token in spec.finalizers.
//   - [DiagnosisReconciler] tells on a Namespace whose beginning or end does not get
//     on what holds it, whoever works on it.
//   - [ExpiryReconciler] deletes every Namespace at the time that was set for it. It is
//     off by default.
//
// Where the API server serves MutatingAdmissionPolicy v1, the first two are not needed for
// a Namespace to be injected, gated or opened: the API server's admission policies do that
// (config/admission). Elsewhere it is gated by them, and the rest is the operator's
// (config/compat).
package controller

// The names of the reconcilers, in logs, metrics and Events.
const (
	configurationControllerName = "initializer-configuration"
	namespaceControllerName     = "namespace-initialization"
	finalizationControllerName  = "namespace-finalization"
	diagnosisControllerName     = "namespace-diagnosis"
	expiryControllerName        = "namespace-expiry"

	// reportingController is the reporting controller of Events.
	reportingController = "nslifecycle"
)

// What people are told to run where something is missing.
const (
	installCommand       = "kubectl apply -k config/default"
	installExpiryCommand = "kubectl apply -k config/expiry"
	// compatCommand is installCommand for API servers without MutatingAdmissionPolicy v1.
	compatCommand = "kubectl apply -k config/compat"
)
