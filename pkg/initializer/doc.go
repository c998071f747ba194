// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializer serves an initializer: a function that prepares each new Namespace
// before anybody else may use it.
//
//	err := initializer.Add(mgr, "limits.corp.example.com",
//		func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
//			return initializer.Result{}, applyLimits(ctx, namespace.Name)
//		})
//
// The name is one that a NamespaceInitializerConfiguration registers, and mgr is any manager
// of controller-runtime. [Add] watches the Namespaces that wait for initializers, and calls
// the [Func] for each one whose list names this initializer, when its turn comes. Where the
// Func returns nil, Add takes the name off the list: that and nothing else. The change cannot
// race another writer: where somebody was first, it is read again and tried again, without
// another call.
//
// # What a Func returns
//
//	nil                     done; the name is taken off the list
//	[Failed]                can never be done; the Namespace gets a result, and the operator deletes it
//	[NotYet]                waits for something; called again after the time, or when the Namespace changes
//	any other error         called again after a back-off, see [WithBackoff]
//	a panic                 the same; other Namespaces are none the worse for it
//
// A Func must be idempotent: it is called again for the same Namespace after an error, and after
// the process ended between its work and the write. Use server-side apply, or compare existing
// objects. Do not treat AlreadyExists as success: the object may be from a request of another user
// that was delayed since an older Namespace of that name.
//
// A Func is not called for a Namespace that is terminating, has failed, or does not wait for it. Its
// context is canceled when one of these becomes true. A Func that neither returns nor respects its
// context blocks one of the workers, see [WithWorkers]: set time-outs for its requests.
//
// # What is published
//
// The condition "<name>/Initialized" of the Namespace says what keeps it waiting: what
// [NotYet] and [Progress] say, or Retrying or Panicked with the error, or Working where a
// Func has said nothing for ten seconds: the operator takes an initializer that says nothing
// for a minute for dead. The reasons Pending, Completed, TimedOut and Deregistered are the
// operator's; in their place appears Waiting, Progressing or Initialized. Nothing that this
// package does depends on the condition. Messages of more than 1024 bytes are cut.
//
// # Rights
//
// The verbs get, list, watch, patch and initialize on namespaces, granted by a
// ClusterRoleBinding, and what the work itself needs. Optional are patch on
// namespaces/status, without which nothing is published; update on namespaces/finalize,
// for [WithFinalizer] where the configuration does not name the token; and get on
// namespaceinitializersets.nslifecycle.dev, by which [Check] knows of a name that is
// registered nowhere.
//
// # The rate of requests
//
// A configuration from controller-runtime's GetConfig has no limit on the client's side, one
// from client-go's InClusterConfig has one of five requests in a second, with bursts of ten.
// Where the configuration sets no QPS this package's own requests have no limit; where it
// sets one, it holds. The requests of the Func are those of its own client.
package initializer
