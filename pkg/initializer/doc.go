// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializer runs an initializer: a function that prepares each new Namespace before users can write to it.
//
//	err := initializer.Add(mgr, "limits.corp.example.com",
//		func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
//			return initializer.Result{}, applyLimits(ctx, namespace.Name)
//		})
//
// A NamespaceInitializerConfiguration registers the name of the initializer, and mgr is any controller-runtime
// manager. [Add] adds a controller that watches initializing Namespaces. The controller calls the [Func] for each
// Namespace whose pending list contains the name, when it is the initializer's turn. When the Func returns nil, the
// controller removes the name from the pending list and changes nothing else. After an update conflict, it reads the
// Namespace and writes again, without calling the Func again.
//
// # What a Func returns
//
//	nil                     success; the name is removed from the pending list
//	[Failed]                permanent failure; the Namespace gets a failure result, and the operator deletes it
//	[NotYet]                waiting; called again after the duration or on a change, see [WithWatch]
//	any other error         called again with backoff, see [WithBackoff]
//	a panic                 called again with backoff; other Namespaces are not affected
//
// A Func must be idempotent: it is called again for the same Namespace after an error. It is also called again if the
// process stops after the Func has returned and before the name is removed. Use server-side apply, or compare
// existing objects with the desired state. Do not treat AlreadyExists as success: a delayed request by another user,
// intended for an earlier Namespace with the same name, might have created the object.
//
// A Func is not called for a Namespace that is terminating, that has failed, or that does not wait for the
// initializer. Its context is canceled when one of these becomes true. A Func that neither returns nor respects its
// context blocks one of the workers (see [WithWorkers]), so set timeouts on its requests.
//
// # Condition
//
// The condition "<name>/Initialized" of the Namespace explains why the Namespace is waiting. It contains the reason
// and message of [NotYet] and [Progress], or the reason Retrying or Panicked with the error. If a call runs for more
// than ten seconds and the initializer has not set the condition yet, the reason is set to Working. Otherwise, the
// operator would report the initializer as unresponsive after one minute. The reasons Pending, Initialized, TimedOut
// and Deregistered are reserved for the operator, and are replaced by Waiting, Progressing or Initialized. This
// package never reads the condition to decide whether to call the Func. Messages are truncated to 1024 bytes.
//
// # Permissions
//
// An initializer requires the verbs get, list, watch, patch and initialize on namespaces, granted by a
// ClusterRoleBinding, and the permissions that the Func requires. Optional permissions:
//
//   - patch namespaces/status, to publish the condition
//   - update namespaces/finalize, for [WithFinalizer] if the configuration does not name the
//     finalizer
//   - list and watch on the objects of [WithWatch]
//   - list namespaceinitializerconfigurations.nslifecycle.dev, so that [Check] can report that the
//     name is not registered
//
// # Rate limits
//
// This package uses the QPS in the manager's rest.Config. If QPS is not set, as in client-go's InClusterConfig, it does
// not limit its requests. The Func sends its requests with its own client.
package initializer
