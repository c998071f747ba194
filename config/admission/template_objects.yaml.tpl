# Protects the objects of NamespaceTemplates:
# 1. A write of a template is rejected if the namespace is not the one for which the operator has
#    rendered the object, but another one with the same name.
# 2. Locked objects can be changed only by users with the "provision" verb or the "initialize" verb.
# 3. An object with finalizers or owner references cannot be locked.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: template-objects
  labels:
    nslifecycle.dev/policy: template-objects
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE", "DELETE"]
      # The requests to some subresources, such as scale and eviction, contain no labels, and the
      # selector below does not match them.
      resources: ["*/*"]
      scope: Namespaced
    # The API server matches the old or the new object, so users cannot remove the label together with
    # the lock.
    objectSelector:
      matchExpressions:
      - key: nslifecycle.dev/managed-by-template
        operator: Exists
  # One cheap condition: the API server evaluates all conditions.
  matchConditions:
  - name: written-by-a-template-or-locked
    expression: >-
      object != null && (request.?options.?fieldManager.orValue('').startsWith('nslifecycle-template') ||
        object.metadata.?labels[?'nslifecycle.dev/locked'].hasValue()) ||
      oldObject != null && oldObject.metadata.?labels[?'nslifecycle.dev/locked'].hasValue()
  variables:
  - name: template
    expression: >-
      object != null && object.metadata.?labels[?'nslifecycle.dev/managed-by-template'].hasValue()
      ? object.metadata.labels['nslifecycle.dev/managed-by-template'] : oldObject.metadata.labels['nslifecycle.dev/managed-by-template']
  # The request for a collection contains no name.
  - name: name
    expression: "oldObject != null ? oldObject.metadata.name : object.metadata.?name.orValue('')"
  - name: isTemplateWrite
    expression: "object != null && request.?options.?fieldManager.orValue('').startsWith('nslifecycle-template')"
  - name: uid
    expression: "object == null ? '' : object.metadata.?annotations[?'nslifecycle.dev/namespace-uid'].orValue('')"
  - name: record
    expression: "namespaceObject.metadata.?annotations[?'nslifecycle.dev/applied-templates'].orValue('')"
  # The record does not contain a template that was deleted.
  - name: isApplied
    expression: >-
      variables.template in {{include "recordedTemplates" "record" "variables.record"}}
  # The declared type of namespaceObject contains the field "UID", but the value has "uid".
  - name: namespaceUID
    expression: "dyn(namespaceObject).metadata.uid"
  - name: isForNamespace
    expression: "!variables.isTemplateWrite || variables.uid == variables.namespaceUID"
  # The API server selects objects by the label of the template: without it, the lock has no effect.
  - name: isLocked
    expression: >-
      object != null && ['nslifecycle.dev/locked', 'nslifecycle.dev/managed-by-template'].all(k,
        object.metadata.?labels[?k].hasValue())
  - name: wasLocked
    expression: >-
      oldObject != null && ['nslifecycle.dev/locked', 'nslifecycle.dev/managed-by-template'].all(k,
        oldObject.metadata.?labels[?k].hasValue())
  # A user who could write the object before could otherwise make the garbage collector delete it, or keep it
  # as an object that is being deleted, which nothing replaces.
  - name: mayBeLocked
    expression: >-
      request.operation != 'UPDATE' || !variables.isLocked || variables.wasLocked ||
      object.metadata.?finalizers.orValue([]).size() == 0 && object.metadata.?ownerReferences.orValue([]).size() == 0 &&
      !has(object.metadata.deletionTimestamp)
  # The API server enforces the status of these types, which only kube-controller-manager and the API server
  # itself write.
  - name: isStatusEnforced
    expression: "request.resource.resource in ['poddisruptionbudgets', 'resourcequotas']"
  # Controllers must be able to report the status, but most types accept changes of the metadata with it:
  # the garbage collector deletes an object whose owner does not exist.
  - name: isStatus
    expression: >-
      request.operation == 'UPDATE' && request.?subResource.orValue('') == 'status' && !variables.isStatusEnforced &&
      object.metadata.?labels == oldObject.metadata.?labels &&
      object.metadata.?annotations == oldObject.metadata.?annotations &&
      object.metadata.?finalizers == oldObject.metadata.?finalizers &&
      object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
  # Controllers must be able to remove their finalizers from objects that are being deleted. Such an update
  # must change nothing else. The controllers that delete the content of a terminating namespace have the
  # verb: while Pods still run in it, other users must not delete the objects that limit them.
  - name: removesFinalizers
    expression: >-
      request.operation == 'UPDATE' && has(oldObject.metadata.deletionTimestamp) &&
      object.metadata.?labels == oldObject.metadata.?labels &&
      object.metadata.?annotations == oldObject.metadata.?annotations &&
      object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences &&
      dyn(object).all(k, k == 'metadata' || k == 'status' && !variables.isStatusEnforced ||
        dyn(oldObject)[?k] == dyn(object)[?k]) &&
      dyn(oldObject).all(k, k in dyn(object))
  # API servers evaluate the messages of valid requests too. Therefore, they are empty for most writes of templates.
  validations:
  - expression: "variables.isForNamespace"
    reason: Invalid
    messageExpression: >-
      variables.isForNamespace ? '' :
      'object "' + variables.name + '" of NamespaceTemplate "' + variables.template + '" was not rendered for this namespace "'
      + request.namespace + '", but for an earlier one: annotation nslifecycle.dev/namespace-uid is '
      + strings.quote(variables.uid.size() > 64 ? variables.uid.substring(0, 64) : variables.uid)
      + ', and the UID of the namespace is "' + variables.namespaceUID + '"'
  # The check specifies no namespace, as in the gate policy.
  - expression: >-
      !(object != null && object.metadata.?labels[?'nslifecycle.dev/locked'].hasValue()) &&
      !(oldObject != null && oldObject.metadata.?labels[?'nslifecycle.dev/locked'].hasValue()) ||
      variables.isStatus || variables.removesFinalizers ||
      {{include "mayProvision" "namespace" "request.namespace"}}
    reason: Forbidden
    message: >-
      the object of a NamespaceTemplate is locked (label nslifecycle.dev/locked): changes require the verb "provision" or
      "initialize" on namespaces, granted by a ClusterRoleBinding
    messageExpression: >-
      variables.isTemplateWrite ? '' :
      'object "' + variables.name + '" of NamespaceTemplate "' + variables.template + '" is locked in namespace "'
      + request.namespace + '" (label nslifecycle.dev/locked): changes require the verb "provision" or "initialize" on'
      + ' namespaces, granted by a ClusterRoleBinding; '
      + (variables.isApplied ? 'to change the object, change the template' :
         'the template does not exist or no longer applies to the namespace, so an administrator must remove the label to unlock the object')
  - expression: "variables.mayBeLocked"
    reason: Invalid
    messageExpression: >-
      variables.mayBeLocked ? '' :
      'object "' + variables.name + '" of NamespaceTemplate "' + variables.template + '" cannot be locked in namespace "'
      + request.namespace + '", because it has finalizers or owner references, or is being deleted: remove them, or'
      + ' delete the object, so that the operator creates it'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: template-objects
  labels:
    nslifecycle.dev/policy: template-objects
spec:
  policyName: template-objects
  validationActions: ["Deny"]
