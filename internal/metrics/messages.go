// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

// Help texts of the metrics.
const (
	helpInitializationDuration = "How long namespaces with initializers took from creation until all initializers had " +
		"completed, the initialization had failed, or the namespace was deleted."
	helpFinalizationDuration = "How long namespaces took from deletion until the namespace finalizer was removed."
	helpInitializersSkipped  = "Initializers that were removed from the pending list of a namespace because they timed " +
		"out or are no longer registered."
	helpEffectiveSetStatus = "1 for the last observed status of the effective set of initializers, 0 for all others; " +
		"Enforced is the healthy status."
	helpSettlingTime = "The grace period of the last deleted namespace: the time between its deletion and " +
		"the earliest check that it is empty."
	helpObjectsDeleted = "Objects in terminating namespaces whose deletion the API server has accepted, each " +
		"counted once."
	helpFinalizationRequests = "Requests to the API server for the content of terminating namespaces, by purpose, " +
		"without discovery and watches."
	helpSharedListRequests = "Lists of one type in one namespace that were answered from a shared cluster-wide list. " +
		"Minus the requests with purpose shared_list, it is the number of list requests saved."
	helpFinalizationThrottled = "How often the finalization of a namespace was throttled because the API server " +
		"answered 429 Too Many Requests."
	helpNamespacesBlocked = "Namespaces whose initialization or deletion makes no progress, by stage and most likely " +
		"cause."
	helpDiagnoses         = "Diagnoses of namespaces that made no progress, by result."
	helpHeldWritesTotal   = "Number of writes to initializing namespaces that the hold webhooks received, by outcome."
	helpHeldWriteDuration = "Duration for which writes to initializing namespaces were held."
	helpHeldWrites        = "Number of writes that are currently held."
	helpDiagnosisDuration = "Duration of a diagnosis, mostly spent on requests to the API server."
	helpDiagnosisRequests = "Requests to the API server that diagnoses have sent."
	helpBuildInfo         = "Always 1; the labels describe the build of the manager."

	helpNamespacesInitializing = "Namespaces that are waiting for initializers, by the first pending initializer."
	helpNamespacesTerminating  = "Namespaces that are being deleted, by state."
	helpOldestNamespace        = "When the namespace that has been in this stage for the longest time was created " +
		"(Initializing) or deleted (Terminating); absent if there is none."
	helpConfigurations = "NamespaceInitializerConfigurations, by the status of their condition Active."
)
