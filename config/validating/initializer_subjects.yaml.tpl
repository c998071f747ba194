# Enforces the subjects of initializers: only they can remove the initializer from the pending list,
# and only when it is first. Users that must wait (waitingSubjects) cannot change the state of an
# initialization. Only the operator can write the start of a turn, from which timeouts are counted; it is removed in the
# write that ends the turn. The guard policy checks the "initialize" verb.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: nslifecycle-initializer-subjects
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: initializer-subjects
spec:
  # This is the initial value, as in the inject policy. The operator sets Fail when every API server
  # recognizes the parameter kind and there are subjects or waitingSubjects.
  failurePolicy: Ignore
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["UPDATE"]
      # Writes to subresources can also change labels and annotations.
      resources: ["namespaces", "namespaces/status", "namespaces/finalize"]
      scope: "*"
    # The API server matches the old or the new object.
    objectSelector:
      matchExpressions:
      - key: nslifecycle.dev/initializing
        operator: Exists
  # One cheap condition: the API server evaluates all conditions.
  matchConditions:
  - name: state-has-changed
    expression: >-
      oldObject.metadata.?annotations[?'nslifecycle.dev/pending-initializers'].orValue('') != '' &&
      (object.metadata.?annotations[?'nslifecycle.dev/pending-initializers'] !=
       oldObject.metadata.?annotations[?'nslifecycle.dev/pending-initializers'] ||
       object.metadata.?annotations[?'nslifecycle.dev/initialization-result'] !=
       oldObject.metadata.?annotations[?'nslifecycle.dev/initialization-result'] ||
       object.metadata.?annotations[?'nslifecycle.dev/turn-started-at'] !=
       oldObject.metadata.?annotations[?'nslifecycle.dev/turn-started-at']) &&
      !(request.userInfo.username in params.?operators.orValue([]))
  variables:
  - name: oldPending
    expression: "oldObject.metadata.annotations['nslifecycle.dev/pending-initializers'].split(',')"
  - name: pending
    expression: >-
      object.metadata.?annotations[?'nslifecycle.dev/pending-initializers'].orValue('') == '' ? [] :
      object.metadata.annotations['nslifecycle.dev/pending-initializers'].split(',')
  # The initializers with subjects that this write removes from the list.
  - name: removed
    expression: >-
      params.?initializers.orValue([]).filter(i, i.?subjects.orValue([]).size() > 0 &&
        i.name in variables.oldPending && !(i.name in variables.pending))
  # The initializers with subjects that the user does not implement.
  - name: foreign
    expression: >-
      variables.removed.filter(i, !{{include "containsUser" "subjects" "i.subjects"}})
      .map(i, i.name)
  # The initializers with subjects that are removed although an earlier one remains in the list.
  - name: early
    expression: >-
      variables.pending.size() == 0 ? [] :
      variables.removed.map(i, i.name)
      .filter(n, variables.oldPending.indexOf(n) > variables.oldPending.indexOf(variables.pending[0]))
  validations:
  - expression: >-
      !{{include "containsUser" "subjects" "params.?waitingSubjects.orValue([])"}}
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to change the initialization of namespace "'
      + oldObject.metadata.name + '", because it is one of the waitingSubjects of a NamespaceInitializerConfiguration'
  - expression: "variables.foreign.size() == 0"
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to remove initializer "' + variables.foreign[0]
      + '" from the pending list of namespace "' + oldObject.metadata.name
      + '": it is not one of its subjects in NamespaceInitializerSet "effective"'
  - expression: "variables.early.size() == 0"
    reason: Forbidden
    messageExpression: >-
      'initializer "' + variables.early[0] + '" cannot be removed from the pending list of namespace "'
      + oldObject.metadata.name + '" while "' + variables.pending[0] + '" is first in the list'
  - expression: >-
      object.metadata.?annotations[?'nslifecycle.dev/turn-started-at'] ==
      oldObject.metadata.?annotations[?'nslifecycle.dev/turn-started-at'] ||
      !object.metadata.?annotations[?'nslifecycle.dev/turn-started-at'].hasValue() &&
      (variables.pending.size() == 0 || variables.pending[0] != variables.oldPending[0])
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to change annotation nslifecycle.dev/turn-started-at of namespace "'
      + oldObject.metadata.name + '": only the operator records the start of a turn'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: nslifecycle-initializer-subjects
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: initializer-subjects
spec:
  policyName: nslifecycle-initializer-subjects
  validationActions: ["Deny"]
  # Without a set, no initializer has subjects.
  paramRef:
    name: effective
    parameterNotFoundAction: Allow
  # These rules repeat the policy's match constraints: the operator restores only fields that it sets.
  matchResources:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["UPDATE"]
      resources: ["namespaces", "namespaces/status", "namespaces/finalize"]
      scope: "*"
    objectSelector:
      matchExpressions:
      - key: nslifecycle.dev/initializing
        operator: Exists
