// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package template applies NamespaceTemplates to Namespaces.
//
// A [Applier] renders the templates that select a Namespace, compares the result with the objects in
// the Namespace, and applies what differs. It impersonates the ServiceAccount of each template, so the
// operator writes no object with its own permissions.
//
// # What is known about an object
//
// The annotation v1alpha1.AnnotationTemplates of the Namespace records for each object its UID, a hash
// of the manifest, and a hash of the managedFields entry of the template's field manager. The API
// server changes this entry whenever another client changes a field that the template sets. Metadata
// is therefore sufficient to find such changes: the operator caches no content except that of the
// sources of copies. Where nothing has changed, nothing is written, also after a restart.
//
// # Recreated Namespaces
//
// The status of a template records the UIDs of the namespaces of its sources before anything is copied. The content of
// a source is read before the UID of its namespace, so it is never that of a later namespace.
//
// Each object has an annotation with the UID of its Namespace. The policy
// v1alpha1.PolicyTemplateObjects rejects an object that was rendered for a Namespace that has been
// deleted and recreated since.
//
// # Deletion
//
// An object is deleted only if the annotation of the Namespace records its UID, if it has the label of
// the template, if the operator has created it, if all objects of the template were applied before, and if
// it is known that no other template of the Namespace contains it. If labels or parameters of the Namespace no longer
// include it, this must be so for some time, because some clients remove labels for a moment.
// The decision is confirmed with the Namespace and the template in the API server, and the request
// contains the UID and the resource version of the object.
package template
