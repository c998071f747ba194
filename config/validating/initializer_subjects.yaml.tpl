# Enforces the subjects of initializers: only they can remove the initializer from the pending list,
# and only when it is first. Users that must wait (waitingSubjects) cannot change the state of an
# initialization. While an initializer with subjects is first, only they and the operator can set a failure. The guard
# policy checks the "initialize" verb.
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
       oldObject.metadata.?annotations[?'nslifecycle.dev/initialization-result']) &&
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
  # Complete removes the result from a namespace that is then initialized.
  - expression: >-
      variables.pending.size() == 0 ||
      object.metadata.?annotations[?'nslifecycle.dev/initialization-result'] ==
      oldObject.metadata.?annotations[?'nslifecycle.dev/initialization-result'] ||
      params.?initializers.orValue([]).all(i, i.name != variables.oldPending[0] ||
        i.?subjects.orValue([]).size() == 0 ||
        {{include "containsUser" "subjects" "i.subjects"}}) ||
      authorizer.group('').resource('namespaces').name(oldObject.metadata.name).check('record').allowed()
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to change annotation nslifecycle.dev/initialization-result of'
      + ' namespace "' + oldObject.metadata.name + '" while initializer "' + variables.oldPending[0]
      + '" is first in the pending list: it is not one of its subjects in NamespaceInitializerSet "effective"'
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
