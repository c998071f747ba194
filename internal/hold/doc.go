// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hold lets writes to an initializing Namespace wait instead of failing: a mutating admission
// webhook (config/webhook) responds when the initialization has completed, and asks the client to send the write
// again (status 429 with Retry-After). Clients with client-go do so. Without the webhook, the gate policy rejects
// the write.
//
// # No held write is admitted
//
// The API server has evaluated all that precedes the webhook with the Namespace as it was before the hold, and
// does not repeat it: the built-in plugins, such as LimitRanger and ServiceAccount, then MutatingAdmissionPolicies,
// then webhooks by the name of their configuration (AllOrderedPlugins in kubernetes,
// pkg/kubeapiserver/options/plugins.go). Policies read the labels, annotations, status and resourceVersion of the
// Namespace as namespaceObject (CreateNamespaceObject in apiserver, pkg/admission/plugin/cel/condition.go), select by
// its labels, and have parameters in it, which initializers create. A mutation by the webhook would cause a
// reinvocation, but only of built-in plugins and of those policies and webhooks with reinvocationPolicy IfNeeded
// (dispatcher.go in apiserver, pkg/admission/plugin/policy/mutating and pkg/admission/plugin/webhook/mutating). So
// for every write, the result could differ from that of a write after the initialization. A write that is sent
// again is processed like any other.
//
// Therefore, the webhook needs no read from the API server, and it does not matter whether its cache or the one
// of the API server is behind: the API server calls the webhook until it has observed the end of the initialization.
//
// # Authorization
//
// RBAC is evaluated before admission. Therefore, a second, optional webhook (config/authorization) holds requests that
// RBAC does not allow, of the user who has requested the Namespace. It never decides itself: after the initialization,
// it repeats the answer of the API server to a SubjectAccessReview.
//
// # Audit mode
//
// While no binding of the gate denies writes, the webhook admits them at once and records who sent them. It reads the
// mode from the status of the effective set, where the controller admission publishes it, and holds writes until then.
// The mode of the webhook protects nothing: if it is behind, the gate rejects writes that it admits.
//
// # Peers
//
// Any Pod that reaches the server can send it reviews of writes. Such reviews take a slot, and time from a budget, only
// if the Namespace is initializing. The API server then rejects more writes, and never admits one. Access reviews are
// answered only if they contain the token of API servers.
package hold
