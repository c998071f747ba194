// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

// Help texts of the metrics.
const (
	helpInitializationDuration = "Time from the creation of a namespace with initializers until it is initialized, its " +
		"initialization has failed, or it is deleted."
	helpFinalizationDuration = "Time from the deletion of a namespace until its namespace finalizer is removed."
	helpInitializersSkipped  = "Initializers that were removed from the pending list of a namespace because they timed " +
		"out or were no longer registered."
	helpEffectiveSetStatus = "1 for the last observed status of the effective set of initializers, 0 for all other " +
		"statuses; the expected status is Enforced."
	helpGracePeriod = "Grace period of the namespace that was deleted last: the time from its deletion to the earliest " +
		"check that it is empty."
	helpObjectsDeleted = "Objects in terminating namespaces whose deletion the API server has accepted. Each object is " +
		"counted once."
	helpFinalizationRequests = "Requests to the API server for the content of terminating namespaces, by purpose. " +
		"Discovery requests and watches are not included."
	helpSharedListRequests = "List requests for one type in one namespace that were answered from a shared cluster-wide " +
		"list. To get the number of saved requests, subtract the requests with purpose SharedList."
	helpFinalizationThrottled = "Namespace finalizations that were throttled because the API server returned 429 " +
		"Too Many Requests."
	helpNamespacesBlocked = "Namespaces whose initialization or deletion makes no progress, by state and most likely " +
		"cause."
	helpDiagnoses         = "Diagnoses of namespaces that make no progress, by result."
	helpHoldWritesTotal   = "Writes to initializing namespaces that the hold webhooks received, by outcome."
	helpHoldDuration      = "Time for which writes to initializing namespaces were held."
	helpHoldWrites        = "Writes that are being held."
	helpDiagnosisDuration = "Duration of a diagnosis, including its requests to the API server."
	helpDiagnosisRequests = "Requests that diagnoses have sent to the API server."
	helpBuildInfo         = "Always 1; the labels describe the build of the manager."

	helpNamespacesInitializing = "Initializing namespaces, by the first pending initializer."
	helpNamespacesTerminating  = "Terminating namespaces, by the reason why they still exist."
	helpOldestNamespace        = "Creation time (Initializing, Failed) or deletion time (Terminating) of the namespace " +
		"that has been in this state longest; absent if no namespace is in this state."
	helpTemplateNamespaces = "Namespaces to which a NamespaceTemplate is applied, by state. Absent for a template " +
		"without status."
	helpTemplatePaused    = "1 while the rollout of a NamespaceTemplate is paused for a reason, 0 otherwise."
	helpTemplateApply     = "Time from the creation of a namespace until the operator has applied its NamespaceTemplates."
	helpTemplateWrites    = "Requests for objects of a NamespaceTemplate that the API server has accepted, by action."
	helpTemplateConflicts = "Objects of a NamespaceTemplate that another client or template controls. Each conflict is " +
		"counted once."

	helpConfigurations = "NamespaceInitializerConfigurations, by the status of their Active condition."
)
