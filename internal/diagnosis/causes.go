// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// Cause states why a namespace makes no progress. The names of causes are public, because they are
// reasons of conditions and values of a metric label. Because of the metric label, the number of
// causes must be small.
type Cause string

// The causes. Their order and their descriptions are in the table of package rules.
const (
	CauseNamespaceControllerUnresponsive Cause = "NamespaceControllerUnresponsive"
	CauseForbidden                       Cause = "Forbidden"
	CauseAPIServiceUnavailable           Cause = "APIServiceUnavailable"
	CauseDiscoveryStale                  Cause = "DiscoveryStale"
	CauseDiscoveryFailing                Cause = "DiscoveryFailing"
	CauseGroupVersionInvalid             Cause = "GroupVersionInvalid"
	CauseConversionWebhookFailing        Cause = "ConversionWebhookFailing"
	CauseStorageUnreadable               Cause = "StorageUnreadable"
	CauseAdmissionWebhookFailing         Cause = "AdmissionWebhookFailing"
	CauseAdmissionRejected               Cause = "AdmissionRejected"
	CauseFinalizerRemovalInvalid         Cause = "FinalizerRemovalInvalid"
	CauseDependencyMissing               Cause = "DependencyMissing"
	CauseFinalizerOwnerFailing           Cause = "FinalizerOwnerFailing"
	CauseObjectPaused                    Cause = "ObjectPaused"
	CauseFinalizerOwnerInNamespace       Cause = "FinalizerOwnerInNamespace"
	CauseFinalizerOwnerNotRunning        Cause = "FinalizerOwnerNotRunning"
	CauseFinalizerOwnerForbidden         Cause = "FinalizerOwnerForbidden"
	CauseFinalizerOwnerNotFound          Cause = "FinalizerOwnerNotFound"
	CausePodOnUnreachableNode            Cause = "PodOnUnreachableNode"
	CausePodNotTerminating               Cause = "PodNotTerminating"
	CausePodFinalizer                    Cause = "PodFinalizer"
	CauseCloudResource                   Cause = "CloudResource"
	CauseVolumeInUse                     Cause = "VolumeInUse"
	CauseForegroundDeletion              Cause = "ForegroundDeletion"
	CauseFinalizerPending                Cause = "FinalizerPending"
	CauseCRDTerminating                  Cause = "CustomResourceDefinitionTerminating"
	CauseThrottled                       Cause = "Throttled"
	CauseTooManyObjects                  Cause = "TooManyObjects"
	CauseNamespaceFinalizer              Cause = "NamespaceFinalizer"
	CauseNamespaceMetadataFinalizer      Cause = "NamespaceMetadataFinalizer"
	CauseUnknown                         Cause = "Unknown"
	CauseInitializerNotRegistered        Cause = "InitializerNotRegistered"
	CauseInitializerFailing              Cause = "InitializerFailing"
	CauseInitializerNotRunning           Cause = "InitializerNotRunning"
	CauseInitializerSlow                 Cause = "InitializerSlow"
	CauseInitializerPending              Cause = "InitializerPending"
)
