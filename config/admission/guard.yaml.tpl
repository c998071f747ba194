{{define "protectedConditions" -}}
{{.object}}.?status.?conditions.orValue([])
.filter(c, ({{include "isOwnCondition"}}) &&
  (oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() || c.type.startsWith('nslifecycle.dev/')) ||
  {{include "isInitializerCondition"}})
{{- end -}}
{{define "userBytes" -}}
(({{.object}}.metadata.?annotations.orValue({}).filter(k, !(k in [{{.progressAnnotations}},
   'nslifecycle.dev/initializers', 'nslifecycle.dev/selected-templates',
   {{.recordAnnotations}}]))
  .map(k, k + {{.object}}.metadata.annotations[k])) +
 {{.object}}.metadata.?finalizers.orValue([]) + {{.object}}.?spec.?finalizers.orValue([]) +
 {{.object}}.metadata.?ownerReferences.orValue([]).map(r, r.apiVersion + r.kind + r.name + r.uid))
.map(s, bytes(s).size()).sum()
{{- end -}}
{{define "conditionBytes" -}}
{{.object}}.?status.?conditions.orValue([])
.map(c, 64 + bytes(c.type + c.status + c.?reason.orValue('') + c.?message.orValue('')).size()).sum()
{{- end -}}
# Protects the state of the initialization that is recorded on the Namespace. The policy checks the
# request after inject and complete have changed it, so that these policies cannot be bypassed.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: guard
  labels:
    nslifecycle.dev/policy: guard
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      # Writes to subresources can also change labels and annotations.
      resources: ["namespaces", "namespaces/status", "namespaces/finalize"]
      scope: "*"
  # One cheap expression selects the requests to check, because the API server evaluates every
  # variable and message of a policy that matches. The expression skips updates that do not change
  # labels, annotations or conditions of this project, and, in initializing namespaces and through
  # /finalize, no labels, annotations, finalizers or owner references. It also skips new namespaces
  # with exactly the state that inject writes, and new namespaces without keys under
  # nslifecycle.dev/.
  matchConditions:
  - name: something-to-check
    expression: >-
      oldObject != null
      ? (oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() ||
         request.?subResource.orValue('') == 'finalize'
         ? object.metadata.?labels != oldObject.metadata.?labels ||
           object.metadata.?annotations != oldObject.metadata.?annotations
         : object.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() ||
           [{{.progressAnnotations}}, 'nslifecycle.dev/initializers',
            'nslifecycle.dev/requested-by', 'nslifecycle.dev/selected-templates', {{.recordAnnotations}}].exists(k,
             object.metadata.?annotations[?k] != oldObject.metadata.?annotations[?k])) ||
        (oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() &&
         (object.metadata.?finalizers != oldObject.metadata.?finalizers ||
          object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences ||
          object.?spec != oldObject.?spec)) ||
        object.?status != oldObject.?status && !has(oldObject.metadata.deletionTimestamp) &&
        ({{include "protectedConditions" "object" "object"}} !=
         {{include "protectedConditions" "object" "oldObject"}} ||
         oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() &&
         object.?status.?conditions.orValue([])
           .map(c, 64 + c.type.size() + c.status.size() + c.?reason.orValue('').size() + c.?message.orValue('').size())
           .sum() > 16384) &&
        !{{include "mayInitialize" "namespace" "oldObject.metadata.name"}}
      : object.metadata.?labels.orValue({}).size() + object.metadata.?annotations.orValue({}).size() > 2000 ||
        object.?spec.?finalizers.orValue([]).size() > 1000 ||
        (object.metadata.?labels[?'nslifecycle.dev/initializing'].orValue('') == 'true'
         ? !(object.metadata.?annotations[?'nslifecycle.dev/pending-initializers'].orValue('') != '' &&
             object.metadata.annotations[?'nslifecycle.dev/initializers'].orValue('') ==
               object.metadata.annotations['nslifecycle.dev/pending-initializers'] &&
             object.metadata.annotations[?'nslifecycle.dev/requested-by'].orValue('') == request.userInfo.username &&
             object.metadata.annotations.filter(k, k.startsWith('nslifecycle.dev/') &&
               k != 'nslifecycle.dev/selected-templates').size() == 3 &&
             object.metadata.labels.filter(k, k.startsWith('nslifecycle.dev/') &&
               k != 'nslifecycle.dev/template').size() == 1) ||
           object.metadata.annotations.map(k, k.size() + object.metadata.annotations[k].size()).sum() > 16384 ||
           object.metadata.?ownerReferences.orValue([]).size() > 0 ||
           object.metadata.?finalizers.orValue([]).size() + object.?spec.?finalizers.orValue([]).size() > 16
         : object.metadata.?labels.orValue({}).exists(k, k.startsWith('nslifecycle.dev/')) ||
           object.metadata.?annotations.orValue({}).exists(k, k.startsWith('nslifecycle.dev/')))
  variables:
  # The label, the annotations and their old values are lists with at most one element, to
  # distinguish an absent value from an empty one.
  - name: name
    expression: "object.metadata.?name.orValue('')"
  - name: isCreate
    expression: "oldObject == null"
  - name: label
    expression: "[?object.metadata.?labels[?'nslifecycle.dev/initializing']]"
  - name: list
    expression: "[?object.metadata.?annotations[?'nslifecycle.dev/pending-initializers']]"
  - name: result
    expression: "[?object.metadata.?annotations[?'nslifecycle.dev/initialization-result']]"
  - name: origin
    expression: >-
      [?object.metadata.?annotations[?'nslifecycle.dev/requested-by']] +
      [?object.metadata.?annotations[?'nslifecycle.dev/initializers']]
  # The records of the operator.
  - name: records
    expression: >-
      [{{.recordAnnotations}}]
      .map(k, [?object.metadata.?annotations[?k]])
  - name: oldRecords
    expression: >-
      variables.isCreate ? [] :
      [{{.recordAnnotations}}]
      .map(k, [?oldObject.metadata.?annotations[?k]])
  - name: oldLabel
    expression: "variables.isCreate ? [] : [?oldObject.metadata.?labels[?'nslifecycle.dev/initializing']]"
  - name: oldList
    expression: "variables.isCreate ? [] : [?oldObject.metadata.?annotations[?'nslifecycle.dev/pending-initializers']]"
  - name: oldResult
    expression: "variables.isCreate ? [] : [?oldObject.metadata.?annotations[?'nslifecycle.dev/initialization-result']]"
  - name: oldOrigin
    expression: >-
      variables.isCreate ? [] :
      [?oldObject.metadata.?annotations[?'nslifecycle.dev/requested-by']] +
      [?oldObject.metadata.?annotations[?'nslifecycle.dev/initializers']]
  - name: pending
    expression: "variables.list.join('') == '' ? [] : variables.list[0].split(',')"
  - name: oldPending
    expression: >-
      {{include "hasNames" "list" "variables.oldList.join('')"}} ? variables.oldList[0].split(',') : []
  # Whether the write removes the first initializer from the list.
  - name: endsTurn
    expression: >-
      variables.oldPending.size() > 0 &&
      (variables.pending.size() == 0 || variables.pending[0] != variables.oldPending[0])
  # The size in bytes of the parts of the Namespace that users write, without labels. The API server
  # accepts 256 KiB of annotations and 1.5 MiB in total.
  - name: userBytes
    expression: >-
      {{include "userBytes" "object" "object"}}
  - name: oldUserBytes
    expression: >-
      variables.isCreate ? 0 :
      {{include "userBytes" "object" "oldObject"}}
  # The number of labels, annotations, finalizers and owner references that users have added. It
  # does not include spec.finalizers, to which inject adds entries. The cost of server-side apply
  # grows with the square of this number.
  - name: userEntries
    expression: >-
      object.metadata.?labels.orValue({}).size() + object.metadata.?annotations.orValue({}).size() +
      object.metadata.?finalizers.orValue([]).size() +
      object.metadata.?ownerReferences.orValue([]).size() -
      (variables.label + variables.list + variables.result + variables.origin).size() -
      variables.records.filter(r, r.size() > 0).size() -
      [?object.metadata.?annotations[?'nslifecycle.dev/selected-templates']].size()
  - name: oldUserEntries
    expression: >-
      variables.isCreate ? 0 :
      oldObject.metadata.?labels.orValue({}).size() + oldObject.metadata.?annotations.orValue({}).size() +
      oldObject.metadata.?finalizers.orValue([]).size() +
      oldObject.metadata.?ownerReferences.orValue([]).size() -
      (variables.oldLabel + variables.oldList + variables.oldResult + variables.oldOrigin).size() -
      variables.oldRecords.filter(r, r.size() > 0).size() -
      [?oldObject.metadata.?annotations[?'nslifecycle.dev/selected-templates']].size()
  # The policy complete restores them in an initialized namespace. If it is not enforced, the operator
  # writes Ready, Initializing and Stalled again, but cannot compute the others.
  - name: ownConditions
    expression: >-
      {{include "protectedConditions" "object" "object"}}
  - name: oldOwnConditions
    expression: >-
      variables.isCreate ? [] :
      {{include "protectedConditions" "object" "oldObject"}}
  # 64 bytes are added for each condition to limit the number of conditions: with about ten thousand
  # conditions, every write would exceed the API server's request timeout.
  - name: conditionBytes
    expression: >-
      {{include "conditionBytes" "object" "object"}}
  - name: oldConditionBytes
    expression: >-
      variables.isCreate ? 0 :
      {{include "conditionBytes" "object" "oldObject"}}
  - name: touched
    expression: >-
      variables.label != variables.oldLabel || variables.list != variables.oldList || variables.result != variables.oldResult
  validations:
  - expression: >-
      variables.isCreate || !variables.touched ||
      {{include "mayInitialize" "namespace" "variables.name"}}
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to change the initialization of namespace "' + variables.name
      + '" (label nslifecycle.dev/initializing, annotations nslifecycle.dev/pending-initializers and nslifecycle.dev/initialization-result):'
      + ' this requires the verb "initialize" on namespaces, granted by a ClusterRoleBinding'
  - expression: >-
      variables.isCreate || variables.list == variables.oldList ||
      variables.pending.join(',') == variables.oldPending.filter(n, n in variables.pending).join(',')
    reason: Invalid
    messageExpression: >-
      'the pending initializers of namespace "' + variables.name + '" can only be removed from annotation nslifecycle.dev/pending-initializers;'
      + ' names cannot be added, reordered or restored'
  - expression: >-
      variables.oldPending.size() == 0 || variables.pending.size() > 0 ||
      !variables.result.join('').matches('{{.failurePattern}}')
    reason: Invalid
    messageExpression: >-
      'the initialization of namespace "' + variables.name
      + '" has failed according to annotation nslifecycle.dev/initialization-result, so the namespace is deleted and its initialization cannot complete: keep your name in the list, or correct the annotation'
  # This rule applies only to changes of the state. A namespace whose state is inconsistent, because
  # it was edited while this policy was not installed, can still be repaired and deleted.
  - expression: >-
      !variables.touched ||
      (variables.pending.size() > 0 ? variables.label == ['true'] : variables.label == [] && variables.list == [])
    reason: Invalid
    messageExpression: >-
      'label nslifecycle.dev/initializing must be "true" on namespace "' + variables.name
      + '" while annotation nslifecycle.dev/pending-initializers is not empty, and both must be absent otherwise'
      + '; to finish an initialization, remove your name from the annotation and do not change the label; repeat the request'
      + ' if you did so: the webhook that removes both did not respond'
  - expression: >-
      variables.isCreate || variables.result == variables.oldResult || variables.result == [] || variables.oldPending.size() > 0
    reason: Invalid
    messageExpression: >-
      'annotation nslifecycle.dev/initialization-result cannot be set on namespace "' + variables.name
      + '": it is not being initialized'
  # The operator decides by these records which objects it keeps, updates and deletes, and when an initializer times
  # out. Therefore a verb of its own permits them, which initializers do not hold. Complete removes the start of a turn in
  # the write that ends the turn, for each user.
  - expression: >-
      variables.isCreate || variables.records == variables.oldRecords ||
      variables.endsTurn &&
      [{{.recordAnnotations}}].all(k, object.metadata.?annotations[?k] ==
        (k == 'nslifecycle.dev/turn-started-at' ? optional.none() : oldObject.metadata.?annotations[?k])) ||
      authorizer.group('').resource('namespaces').name(variables.name).check('record').allowed()
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to change annotation nslifecycle.dev/applied-templates'
      + ' or nslifecycle.dev/turn-started-at of namespace "' + variables.name
      + '", which the operator writes: this requires the verb "record" on namespaces, granted by a ClusterRoleBinding'
  # The annotations are compared one by one: the text of one could otherwise be moved to another.
  - expression: >-
      variables.isCreate ||
      ['requested-by', 'initializers', 'selected-templates'].all(k,
        object.metadata.?annotations[?'nslifecycle.dev/' + k] == oldObject.metadata.?annotations[?'nslifecycle.dev/' + k])
    reason: Invalid
    messageExpression: >-
      'annotations nslifecycle.dev/selected-templates, nslifecycle.dev/requested-by and nslifecycle.dev/initializers of namespace "'
      + variables.name + '" record how it was created and are immutable; send them unchanged'
  # Without a set, inject does not run, and the object contains the state that the user sent.
  - expression: >-
      !variables.isCreate ||
      (variables.label == [] && variables.result == [] && variables.origin == [] &&
       !object.metadata.?annotations[?'nslifecycle.dev/selected-templates'].hasValue()) ||
      (variables.label == ['true'] && variables.result == [] &&
       variables.origin == [request.userInfo.username] + variables.list)
    reason: Invalid
    message: "the API server sets the labels and annotations under nslifecycle.dev/ when a namespace is created; remove them from the request"
  # The inject policy iterates over all keys. While its failurePolicy is Ignore, a request with so
  # many keys that inject exceeds its CEL cost limit would bypass inject. Therefore the number of
  # keys is limited here.
  - expression: >-
      !variables.isCreate ||
      object.metadata.?labels.orValue({}).size() + object.metadata.?annotations.orValue({}).size() <= 2000
    reason: Invalid
    message: "a new namespace can have at most 2000 labels and annotations"
  # For the same reason: inject compares each finalizer that it adds with those in the request.
  - expression: "!variables.isCreate || object.?spec.?finalizers.orValue([]).size() <= 1000"
    reason: Invalid
    message: "a new namespace can have at most 1000 entries in spec.finalizers"
  - expression: >-
      !variables.isCreate ||
      (object.metadata.?labels.orValue({}).all(k,
         !k.startsWith('nslifecycle.dev/') ||
         k in ['nslifecycle.dev/initializing', {{.settableLabels}}]) &&
       object.metadata.?annotations.orValue({}).all(k,
         !k.startsWith('nslifecycle.dev/') ||
         k in ['nslifecycle.dev/pending-initializers',
               {{.originAnnotations}}]))
    reason: Invalid
    message: >-
      the API server sets the labels and annotations under nslifecycle.dev/ when a namespace is created; remove them from the request,
      except labels nslifecycle.dev/deletion-protection and nslifecycle.dev/template
  # The templates policy does not check /finalize. The rules above protect the annotations with the prefix
  # nslifecycle.dev/.
  - expression: >-
      request.?subResource.orValue('') != 'finalize' || has(oldObject.metadata.deletionTimestamp) ||
      (object.metadata.?labels.orValue({}).map(k, k) + oldObject.metadata.?labels.orValue({}).map(k, k)).all(k,
        k == 'nslifecycle.dev/initializing' ||
        object.metadata.?labels[?k] == oldObject.metadata.?labels[?k]) &&
      (object.metadata.?annotations.orValue({}).map(k, k) + oldObject.metadata.?annotations.orValue({}).map(k, k)).all(k,
        k.startsWith('nslifecycle.dev/') ||
        object.metadata.?annotations[?k] == oldObject.metadata.?annotations[?k])
    reason: Invalid
    message: "the labels and annotations of a namespace cannot be changed through /finalize"
  # In a terminating namespace, complete restores what templates lock if a client omits it, but not other values.
  - expression: >-
      request.?subResource.orValue('') != 'finalize' ||
      [oldObject.metadata.?annotations[?'nslifecycle.dev/applied-templates'].orValue('')].all(r,
        {{include "lockedKeys" "record" "r" "pattern" .lockedLabelsPattern}}.all(k,
          !object.metadata.?labels[?k].hasValue() || object.metadata.?labels[?k] == oldObject.metadata.?labels[?k]) &&
        {{include "lockedKeys" "record" "r" "pattern" .lockedAnnotationsPattern}}.all(k,
          !object.metadata.?annotations[?k].hasValue() || object.metadata.?annotations[?k] == oldObject.metadata.?annotations[?k])) ||
      {{include "mayProvision" "namespace" "variables.name"}}
    reason: Forbidden
    message: "the labels and annotations that a template locks cannot be changed through /finalize"
  # These conditions report which initializers were skipped, and that a namespace will be deleted.
  - expression: >-
      variables.isCreate || variables.ownConditions == variables.oldOwnConditions ||
      has(oldObject.metadata.deletionTimestamp) ||
      {{include "mayInitialize" "namespace" "variables.name"}}
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to change the conditions of nslifecycle on namespace "' + variables.name
      + '": this requires the verb "initialize" on namespaces, granted by a ClusterRoleBinding'
  # Limits the total size of the conditions.
  - expression: >-
      variables.isCreate || variables.oldLabel == [] || has(oldObject.metadata.deletionTimestamp) ||
      variables.conditionBytes <= 65536 || variables.conditionBytes <= variables.oldConditionBytes ||
      {{include "mayInitialize" "namespace" "variables.name"}}
    reason: Forbidden
    message: "a namespace that is being initialized can have at most 64 KiB of conditions"
  # The state of the initialization must fit into the Namespace object. A Namespace that already
  # exceeds a limit can keep its size.
  - expression: >-
      (variables.isCreate ? variables.label : variables.oldLabel) == [] ||
      variables.userEntries <= 2000 || variables.userEntries <= variables.oldUserEntries
    reason: Invalid
    message: >-
      a namespace that is being initialized can have at most 2000 labels, annotations, finalizers and owner references
  - expression: >-
      (variables.isCreate ? variables.label : variables.oldLabel) == [] ||
      variables.userBytes <= 131072 || variables.userBytes <= variables.oldUserBytes
    reason: Invalid
    message: >-
      a namespace that is being initialized can have at most 128 KiB of annotations, finalizers and owner references,
      so that the state of its initialization fits
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: guard
  labels:
    nslifecycle.dev/policy: guard
spec:
  policyName: guard
  validationActions: ["Deny"]
