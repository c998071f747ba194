{{define "isProtectedCondition" -}}
{{include "isOwnCondition"}} || c.type in variables.initializerTypes || {{include "isSkipCondition"}}
{{- end -}}
# Combines four functions, because the order of mutating policies is undefined:
# 1. Completes the initialization in the write that empties the pending list, if the requester has
#    the "initialize" verb. The guard policy rejects such writes by other users.
# 2. Restores state under nslifecycle.dev/ that a write omits. A client that omits a key in a PUT,
#    with kubectl replace or with kubectl apply, does not intend to remove the key: the creator of a
#    namespace can make any later apply omit it, with metadata.managedFields or with the annotation
#    kubectl.kubernetes.io/last-applied-configuration. To remove a value, clients set it to the empty
#    string.
# 3. Restores the conditions and the records of the operator in initialized and terminating
#    namespaces: clients that send their whole list of conditions, or an older copy, do not intend to
#    change them. In other namespaces, it restores the conditions only if the write omits all of them,
#    and the guard policy rejects other changes.
# 4. Restores labels and annotations that a write omits although a template locks them, for the same
#    reason as 2, and the labels by which such a template selects the namespace. It reads them from
#    the record of the operator and not from a parameter: with failurePolicy Fail, an API server that
#    has not read the parameter would reject every update of a Namespace.
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: nslifecycle-complete
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: complete
spec:
  failurePolicy: Fail
  # If a later webhook removes state, this policy does not restore it: the guard policy rejects the
  # write.
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["UPDATE"]
      # Writes to subresources can also change labels and annotations.
      resources: ["namespaces", "namespaces/status", "namespaces/finalize"]
      scope: "*"
  # There is only one condition, and it is cheap: the API server always evaluates all conditions,
  # even if the first one is false.
  matchConditions:
  - name: something-left-out-or-emptied
    expression: >-
      (oldObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue() &&
       !object.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue()) ||
      [{{.originAnnotations}},
       {{.recordAnnotations}},
       {{.progressAnnotations}}].exists(k,
        oldObject.metadata.?annotations[?k].orValue('') != '' && object.metadata.?annotations[?k].orValue('') == '') ||
      object.metadata.?annotations[?'nslifecycle.dev/turn-started-at'].hasValue() &&
      object.metadata.?annotations[?'nslifecycle.dev/pending-initializers'] !=
      oldObject.metadata.?annotations[?'nslifecycle.dev/pending-initializers'] ||
      [{{.progressAnnotations}},
       {{.recordAnnotations}}].exists(k,
        object.metadata.?annotations[?k].orValue('-') == '') ||
      {{include "omitsLocked"}} ||
      {{include "changesRecords"}} ||
      {{include "changesConditions"}}
  variables:
  - name: before
    expression: "oldObject.metadata.?annotations.orValue({})"
  - name: annotations
    expression: "object.metadata.?annotations.orValue({})"
  # A list of only commas and whitespace contains no initializers. Users can write such a list while
  # no policy is installed.
  - name: isPending
    expression: >-
      {{include "hasNames" "list" "variables.before[?'nslifecycle.dev/pending-initializers'].orValue('')"}}
  # A namespace whose initialization has failed is deleted and never initialized. CEL cannot parse
  # JSON. The operator detects failures with the same pattern (internal/initialization/state.go).
  - name: completes
    expression: >-
      variables.isPending && variables.annotations[?'nslifecycle.dev/pending-initializers'].orValue('-') == '' &&
      !variables.annotations[?'nslifecycle.dev/initialization-result']
      .or(variables.before[?'nslifecycle.dev/initialization-result']).orValue('')
      .matches('{{.failurePattern}}') &&
      {{include "mayInitialize" "namespace" "oldObject.metadata.name"}}
  # Whether the write removes the first initializer from the list. Its turn then ends.
  - name: endsTurn
    expression: >-
      variables.isPending && 'nslifecycle.dev/pending-initializers' in variables.annotations &&
      variables.annotations['nslifecycle.dev/pending-initializers'].split(',')[0] !=
      variables.before['nslifecycle.dev/pending-initializers'].split(',')[0]
  - name: record
    expression: "variables.before[?'nslifecycle.dev/applied-templates'].orValue('')"
  - name: omitsLocked
    expression: >-
      {{include "omitsLocked"}}
  # The records of an older copy.
  - name: stale
    expression: >-
      !({{include "changesRecords"}}) ? [] :
      [{{.recordAnnotations}}].filter(k, k in variables.annotations && variables.annotations[?k] != variables.before[?k])
  - name: labels
    expression: "object.metadata.?labels.orValue({})"
  - name: oldLabels
    expression: "oldObject.metadata.?labels.orValue({})"
  - name: leftOut
    expression: >-
      [{{.originAnnotations}},
       {{.recordAnnotations}},
       {{.progressAnnotations}}]
      .filter(k, variables.before[?k].orValue('') != '' && !(k in variables.annotations) &&
        !(k == 'nslifecycle.dev/turn-started-at' && variables.endsTurn) &&
        (!(k in [{{.progressAnnotations}}]) ||
         variables.isPending && !variables.completes)) +
      (!variables.omitsLocked ? [] :
       {{include "lockedKeys" "record" "variables.record" "pattern" .lockedAnnotationsPattern}}
       .filter(k, k in variables.before && !(k in variables.annotations)))
  - name: leftOutLabels
    expression: >-
      (variables.isPending && !variables.completes && 'nslifecycle.dev/initializing' in variables.oldLabels &&
       !('nslifecycle.dev/initializing' in variables.labels) ? ['nslifecycle.dev/initializing'] : []) +
      (!variables.omitsLocked ? [] :
       {{include "lockedKeys" "record" "variables.record" "pattern" .lockedLabelsPattern}}
       .filter(k, k in variables.oldLabels && !(k in variables.labels)))
  # Empty annotations are removed, so that a client can repeat the write that completed the
  # initialization. The guard policy rejects a removal by users without the verb.
  - name: emptied
    expression: >-
      [{{.progressAnnotations}}]
      .filter(k, k in variables.annotations && (variables.completes || variables.annotations[k] == '' &&
        (k == 'nslifecycle.dev/initialization-result' || !variables.isPending))) +
      [{{.recordAnnotations}}]
      .filter(k, k in variables.annotations && !(k in variables.stale && k in variables.before) &&
        (k in variables.stale || variables.annotations[k] == '' ||
         k == 'nslifecycle.dev/turn-started-at' && variables.endsTurn &&
         variables.annotations[k] == variables.before[?k].orValue('')))
  - name: conditions
    expression: "object.?status.?conditions.orValue([])"
  - name: oldConditions
    expression: "oldObject.?status.?conditions.orValue([])"
  - name: types
    expression: "variables.conditions.map(c, c.type)"
  - name: oldTypes
    expression: "variables.oldConditions.map(c, c.type)"
  - name: initializerTypes
    expression: >-
      variables.before[?'nslifecycle.dev/initializers'].orValue('').split(',').map(n, n.trim() + '/Initialized')
  - name: restoresConditions
    expression: >-
      {{include "changesConditions"}}
  # A list with two conditions of one type contains neither.
  - name: kept
    expression: >-
      !variables.restoresConditions ? [] :
      variables.conditions.filter(c, !({{include "isProtectedCondition"}}) ||
        c.type in variables.oldTypes && variables.types.exists_one(t, t == c.type))
  # Omitted conditions precede those of the request, whose order is kept: a client that repeats the
  # request changes nothing, and one that adds a condition finds it at the end.
  - name: restoredConditions
    expression: >-
      !variables.restoresConditions ? variables.conditions :
      variables.oldConditions.filter(c, ({{include "isProtectedCondition"}}) &&
        !variables.kept.exists(k, k.type == c.type)) +
      variables.kept.map(c, {{include "isProtectedCondition"}}
        ? variables.oldConditions.filter(o, o.type == c.type)[0] : c)
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        (variables.leftOut.size() == 0 || has(object.metadata.annotations) ? [] :
          [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]) +
        (variables.leftOut + variables.stale.filter(k, k in variables.before)).map(k,
          JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey(k), value: variables.before[k]}) +
        variables.emptied.map(k, JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey(k)}) +
        (variables.leftOutLabels.size() == 0 || has(object.metadata.labels) ? [] :
          [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}]) +
        variables.leftOutLabels.map(k, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey(k),
          value: variables.oldLabels[k]}) +
        (variables.completes && 'nslifecycle.dev/initializing' in variables.labels
         ? [JSONPatch{op: 'remove', path: '/metadata/labels/nslifecycle.dev~1initializing'}] : []) +
        (variables.restoredConditions == variables.conditions ? [] :
         (has(object.status) ? [] : [JSONPatch{op: 'add', path: '/status', value: {}}]) +
         [JSONPatch{op: 'add', path: '/status/conditions', value: variables.restoredConditions.map(c, {
           'type': c.type, 'status': c.status, 'reason': c.?reason.orValue(''), 'message': c.?message.orValue(''),
           'lastTransitionTime': c.?lastTransitionTime.orValue(null)})}])
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: nslifecycle-complete
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: complete
spec:
  policyName: nslifecycle-complete
