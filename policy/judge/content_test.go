package judge_test

import (
	"strings"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// contentful are messages with content that look like courtesies, each on a line, after what this agent said
// before where that matters: "before => message / message".
var contentful = map[string]string{
	"reports": `
把登录的问题修掉。 => 问题解决了 / 问题都解决了，谢谢 / 没问题了 / 都解决了 / 任务顺利完成 / 圆满成功 / 大功告成 / 收工
把支付表迁移完。 => 任务圆满完成 / 圆满完成 / 完美收官 / 非常顺利 / 很成功 / 收工了 / 一切顺利 / 太好了，成功了 / 没毛病 / 妥了
排查一下线上问题，今天给结论。 => 没问题了 / 没有问题了 / 问题解决了，辛苦了 / 没什么问题 / 没事了 / 没啥问题了 / 一切正常 / 都在掌控之中
组织一下周五的会议。 => 本次会议圆满结束 / 会议非常成功 / 会议结束 / 活动圆满结束 / 讨论很顺利 / 氛围特别好 / 散会了
跟进一下客户的投诉。 => 客户满意就好 / 客户很满意 / 客户满意了 / 所有问题都沟通清楚了 / 都谈妥了 / 沟通好了
核对一下发票。 => 没问题 / 没毛病 / 都对 / 没有遗留问题 / 清楚了
把周报发给老板。 => 老板很满意 / 老板已阅 / 好评
盯着今晚的发布。 => 发布成功 / 发布很顺利 / 圆满收官 / 完美
Fix the login bug and report back. => We did it! / We made it / Nailed it / Crushed it / Fixed it / It works
Fix the login bug and report back. => It works great / Mission accomplished
Migrate the payments table tonight. => The migration went great / Glad the migration went smoothly
Migrate the payments table tonight. => It went well / It all worked out / Glad it all worked out / All good
Run the acceptance tests tonight. => All clear / All good / Everything is in order / In perfect order
Run the acceptance tests tonight. => Everything is clear / No issues / Perfect score / All set
Check the backup. => All good / It's fine / It is all right / That's fine / It's all good / No problem
Check the backup. => It's okay / Looks like we're good
Deploy v2 to staging. => Great success, thanks / Smooth rollout / Mission accomplished / Great rollout
Deploy v2 to staging. => The rollout was smooth / Aced it / We're done here / That's a wrap
Book the room. => All set / I'm all set / We're all set / Done / It's done / Thanks, I'm done here
Tell me when the job is over. => That's it / That's all / It's over / That is a wrap
Negotiate with the vendor. => We could reach an agreement / Great result / Excellent outcome / Huge success
Negotiate with the vendor. => Happy with the outcome / We nailed it / Great progress
Train the model overnight. => Great progress / Best result / Flawless / High quality
Train the model overnight. => Very pleased with the result / The results are amazing
 => 任务圆满完成 / 项目圆满收官 / 问题解决了 / 问题都解决了 / 会议非常成功 / 活动圆满结束 / 本次协作顺利结束，谢谢
 => 我的问题解决了 / 我们达成共识了 / 大功告成 / 圆满成功 / 会议圆满结束
 => Mission accomplished / We did it / They did it / We made it / All clear / Everything is in order
 => Great result / The result was great
 => Smooth rollout / Great rollout / Excellent outcome / Fantastic result, team / The outcome was excellent
 => Great progress
 => We could reach a consensus / Nailed it / Aced it`,

	"news": `
 => Thank you very much the printer exploded / Thank you so much everyone the vendor capitulated
 => So glad the backup restored
 => I'm delighted that Acme renewed / 很高兴方案获批 / Congratulations you are hired / 祝贺团队夺冠
 => Thanks for changing the venue to Berlin
 => Thank you for choosing Berlin / Thanks for granting root access / 谢谢你选了北京
 => Thanks for letting me know about the leak
 => I'm so pleased the regulator consented / Thank you so much for escalating to Legal
 => Thanks for moving the demo to Friday
 => Thanks for picking option beta / 感谢你把会议改到周五 / 感谢你选择方案乙 / Thanks for the unanimous veto
 => Appreciate everyone voting no
 => I appreciate your refusal / Thank you for declining / Thanks for confirming Berlin
 => Thanks for confirming, Berlin / Best of luck, I quit
 => We are honored to merge with Acme / I'm glad to announce Bob as lead / Glad to report full recovery
 => Sick today / I am sick
 => Thanks everyone the backend crashed / Glad that the payments resumed / Happy that Bob accepted the proposal
 => We are thrilled that Acme signed
 => Thanks for agreeing to refund us / Wishing you luck with the lawsuit / It was an honor, I resign
 => Rest up, Bob covers / 很高兴服务恢复
 => 恭喜中标 / 恭喜过审 / 恭喜大家涨薪 / 恭喜大家，客户签字 / 感谢老板批准 / 谢谢老板签字 / 多亏你备份 / 谢谢你撤回 / 感谢你承担费用
 => 感谢你答应加班 / 很高兴客户续签 / 恭喜拿下 / 谢谢你选二号方案 / 感谢大家投了反对票 / 谢谢，库存清零 / 辛苦了，回滚 / 祝好，周四停机
 => 太好了，中标 / 太棒了，获批 / 真高兴，续约 / 感谢支持本次迁移 / 感谢配合停机 / 感谢你的辞呈 / 谢谢你的证书 / 谢谢你删除了缓存
 => 谢谢你帮我请假 / 祝手术顺利 / 恭喜升职 / 祝贺上市 / 我离职了，保重 / 最后一天上班，再见大家 / 期待周三上线 / 开心，签了
 => Thanks for deleting production / Thanks for breaking the build / Thank goodness the backup worked
 => Thank God the fire is out
 => Congrats on the promotion / Congratulations on the release / Cheers to the new CEO / So happy it rained
 => Great news the vendor agreed
 => Glad the disk survived / Delighted the court dismissed it / Thank you Bob quit
 => Thanks all the cluster burned / So relieved it passed
 => Proud that Ann won / Touched down safely / I'm so blessed, it's a girl / Thanks for flying with us
 => Thank you for your resignation
 => Thank you for canceling / Thanks for rejecting it / Thanks for resetting my password
 => Thanks for volunteering to present / Nice, works
 => I wish you were here / Best wishes for the surgery / Have a safe trip to Boston / See you at the airport
 => Goodbye everyone, today is my last day`,

	"requests": `
 => 辛苦大家处理 / 辛苦大家处理，谢谢 / 辛苦大家填写 / 辛苦大家投票 / 辛苦跟进 / 辛苦你跟进 / 辛苦各位填写问卷，谢谢 / 辛苦大家支持
 => Thank you for holding the merge / Thanks for stopping the rollout / Thanks for pausing the rollout
 => Thanks for replying by noon
 => Thank you for keeping this confidential / Grateful for any help / Your review is appreciated
 => I'd appreciate your feedback
 => I appreciate a quick response / Thoughts appreciated / Hope to hear from you soon
 => Thanks in advance for your help / Thanks in advance
 => Thanks for your quick answer tomorrow / Your input is appreciated / Your feedback would be appreciated
 => A reply would be appreciated
 => I'd be grateful for a reply / Your prompt response is appreciated / A prompt reply is appreciated
 => Your prompt attention is appreciated
 => Thanks in advance for your feedback / Thank you in advance for your prompt response
 => Thanks in advance for your review
 => Your suggestions are appreciated / Your guidance is appreciated / Grateful for your advice
 => Appreciate your guidance / Feedback welcome
 => Hope you can review / Hoping you can assist Bob / Wishing you would reply / I'd be grateful if you replied
 => I would be happy if everyone voted
 => Any help appreciated / Help appreciated / Love your thoughts / Would love your opinion
 => Looking forward to your review
 => Looking forward to your answer / Looking forward to hearing from you / Hope you can join us
 => Hoping for a quick reply / I hope you can help
 => 辛苦排查 / 辛苦你整理 / 辛苦你确认 / 辛苦大家检查 / 辛苦你翻译 / 辛苦各位校对 / 辛苦大家准备 / 辛苦你安排 / 辛苦你汇总 / 辛苦提醒
 => 辛苦大家投入 / 辛苦大家反馈 / 辛苦反馈 / 辛苦大家更新 / 辛苦补充 / 辛苦你解答 / 辛苦回复 / 辛苦你回复，谢谢 / 辛苦大家点赞
 => 麻烦大家支持 / 麻烦大家配合 / 麻烦大家填写 / 麻烦你跟进 / 麻烦你整理，谢谢 / 麻烦解答 / 有劳解答 / 有劳各位跟进 / 劳您费心跟进
 => 期待你的回复 / 期待您的答复 / 期待你的反馈 / 期待你的分享 / 期待你的参与 / 期待大家的意见 / 期待您的支持 / 期待你加入 / 期待大家参加
 => 希望大家支持 / 希望得到你的帮助 / 希望你能帮忙 / 请多支持 / 望支持 / 还望支持 / 希望配合 / 多多支持 / 等你好消息 / 盼复
 => 先谢了，等你消息 / 谢谢，尽快 / 谢谢，帮忙看看 / 多谢，给个链接 / Thanks, send it over / Thanks, ship it / Great, go on
 => Appreciate your support on this / Appreciate any feedback / Keep me posted / Keep this private
 => Take care of it / Take care of this
 => Take care of everything / Feel free to merge / Comments welcome / 欢迎提意见 / 欢迎反馈 / 欢迎指正`,

	"acceptances": `
The retro is on Friday at ten. You are invited. => Thanks for the invite, happy to join / Delighted to accept
The retro is on Friday at ten. You are invited. => Happy to join! / Glad to join / Happy to be part of it
The retro is on Friday at ten. You are invited. => 很荣幸受邀 / 很荣幸加入 / 乐意参加 / 很高兴能参加 / 荣幸参加
We hold the retro on Friday at ten. => Happy to join! / Happy to come / Glad to be there / I'll be there / 一定到
We hold the retro on Friday at ten. => 很高兴参加 / 期待参加
Bob is away tomorrow, so the night shift is open. => I'm happy to cover / Happy to help with that
Bob is away tomorrow, so the night shift is open. => Glad to help out / Happy to pitch in / I can cover / 乐意帮忙
Bob is away tomorrow, so the night shift is open. => 愿意效劳 / 我随时可以支援 / 我可以帮忙
The migration needs a second pair of hands. => Happy to help with the migration / Happy to help / Glad to assist
The migration needs a second pair of hands. => Happy to contribute / Happy to support / Happy to lend a hand
The migration needs a second pair of hands. => 很乐意帮忙 / 乐意之至
We look for a lead of the project. => Thank you all, I'm honored and I accept / I'd be honored
We look for a lead of the project. => Honored to accept / Glad to lead / 我愿意 / 恭敬不如从命 / 当仁不让
 => 感谢你同意延期 / 我随时可以支援 / 我们随时能配合 / 我愿意加入 / 很荣幸受邀 / 我来 / 我能帮忙 / 我可以帮忙 / 我有空 / 乐意参加
 => Happy to help with the migration / I'm happy to cover / Delighted to accept / Happy to join!
 => Thanks for the invite, happy to join
 => Happy to discuss / Happy to attend / Glad to take part / I'm glad to lead / I'm happy to host
 => It is my pleasure to host / Delighted to join
 => We are pleased to accept / Pleased to accept your offer / Glad to accept your invite
 => Happy to take the on-call / Happy to lead the review
 => Glad to join the call / Count me in / I'm in / I'd love to / I would love to / Happy to contribute
 => Happy to be part of it / Glad to participate
 => I am honored to accept the role / Happy to drive this / Happy to own it / Happy to share the notes
 => Glad to share my experience
 => 很荣幸加入 / 很荣幸能参加 / 很高兴加入 / 很高兴参加活动 / 荣幸参加会议 / 很高兴能加入团队 / 交给我 / 包在我身上 / 我负责 / 算我一个`,

	"approvals": `
请确认：会议定在周四 => 好的 / 同意 / 可以 / 行
RSVP by Friday. => Yes / Sure / No / Definitely
Merge blocked until you say OK. => OK / ok / 👍 / Yes
Blocked on you. => OK / Sure / Agreed
Restart now, yes/no => yes / no / Yes!
Confirmation needed: transfer 500 EUR => Correct / Yes / Confirmed
Transfer 500 EUR to Bob. Correct => Yes / Right / Exactly
I'll proceed once you agree. => Agreed / OK / Absolutely / 同意
Proposal: move to Friday => Agreed / Fine by me / Works for me / I agree / Sounds good
Option A or option B. => Agreed / OK
Delete the table on your word. => Yes / OK / Sure
OK to merge => Yes / OK / Sure
Good to go => Yes / Absolutely
Ready => Yes
Ping me when I may proceed. => Sure / OK
报销单500元待批 => 同意 / 可以 / 好
没有你的许可我不动 => 可以 / 同意
这样行不 => 行 / 可以
能上线不 => 可以 / 行
这样处理可以不 => 可以
周四开会，回个话 => 可以 / 好的
给个准话 => 可以 / 行
你拿主意 => 好的 / 同意
选一个 => 行
明天上线，OK的话扣1 => 好 / 收到
我现在删库，有问题喊停 => 好的 / 没问题 / 没意见
五分钟后上线，反对的请举手 => 没意见 / 同意 / 没异议
听你的 => 可以
定了告诉我 => 好的
会议改到周四，收到回1 => 收到
参加的打1 => 收到
会议改到周四，请知悉 => 收到
Meeting moved to Thursday, ack => Noted / Received
Meeting moved to Thursday. RSVP => Sure
I'll roll back the release unless you object => Agreed / Go / Fine
Your sign-off is needed. => OK / Approved
Needed: your vote => Yes / Agreed
Waiting on your word => OK / Sure
Nothing happens until you confirm => Confirmed / OK
Once you approve, I start. => Approved / OK / Sure
待你许可 => 可以 / 同意
等你拍板 => 同意 / 可以 / 行
请批示 => 同意 / 可以 / 好的
麻烦给个准信 => 可以 / 没问题
采购单待审 => 同意 / 可以
合同待签 => 同意 / 好的
二选一：周四或周五 => 好的 / 行
周四开会行不行 => 行 / 可以
就等你一句话 => 同意 / 好
没有你点头我不发 => 可以 / 同意
要是同意，回复1 => 同意 / 好`,

	"mixed": `
Compile the quarterly figures and confirm when finished. => Everything adds up / Looks great / It's perfect
Compile the quarterly figures and confirm when finished. => All sorted / Wonderful / Went smoothly, thanks
Compile the quarterly figures and confirm when finished. => Couldn't be better / Smoothly
Test whether the new form works on phones. => Works like a charm / Looks good / Beautiful / Looks great to me
Test whether the new form works on phones. => All fine / Works for me / That works / Good
看看新版页面在手机上正不正常。 => 很好 / 挺好的 / 非常流畅 / 显示完美 / 好看 / 可以 / 都好
把会议室订好。 => 订好了 / 好了 / 好啦 / 安排好了 / 一切就绪
你去和供应商谈价格。 => 谈成了 / 很愉快 / 很顺利，谢谢 / 合作愉快 / 对方同意了 / 成了
给王总发生日祝福。 => 王总很开心 / 他很感动 / 王总说谢谢
Find out whether Ann joins us. => She'd love to / Happy to join / She is in
The customer waits for a decision about the refund. => Agreed / Fine by me / OK
I can also do it on Monday. => Perfect / Great / That works for me
I think we should use Postgres. => Agreed / I agree / Makes sense / Fair enough / Sounds good
Draft is in the folder, feedback by Friday. => Looks great / Love it / I like it / Perfect / 很好
草稿在文件夹里，周五前给反馈。 => 写得很好 / 非常棒 / 没意见 / 同意 / 可以
我觉得应该用方案二。 => 同意 / 赞同 / 可以 / 有道理
我倾向先灰度。 => 同意 / 好的 / 可以
没人反对就今晚上线。 => 没意见 / 同意 / 好的
如果可以，我就今晚上线。 => 可以 / 行
I will deploy tonight unless somebody objects. => Fine / Go ahead / Sounds good
Deploying at ten if all agree. => Agreed / Sounds good to me
 => Thanks for the outage report, reading it / Thank you, refunding now / Great, closing / Glad, merging
 => 谢谢，合并中 / 好的，已收款 / 感谢，钱到账了 / 太好了，我中奖了 / 恭喜王总 / 感谢大家选我 / 很荣幸获奖 / 高兴，批了 / 祝贺小组夺冠 / 辛苦尽快给我 / 辛苦再等等 / 麻烦稍等 / 有劳带路
 => 辛苦看看 / 辛苦你催催 / 麻烦查收 / 麻烦转发 / 拜托大家投票 / 拜托了 / Grateful if you could look / Appreciate a second look
 => Would be great to have it / A follow up would be lovely / Hope for a quick decision
 => Much appreciated if done today / Kindly respond / Awaiting your reply / Looking forward to the draft
 => Happy to review / Glad to step in / Love to join / Would love to / Delighted to host / 乐意加入 / 我愿意试试 / 很高兴接手
 => 荣幸主持 / 我加入 / 愿意参加 / Thanks, count me in / Thanks but we are closed / Thanks for nothing happened
 => Cheers, out sick / Happy Friday, office closed / 祝好，办公室关门 / 谢谢大家，我退出 / 再见，我退群了 / Great, lost again
 => Wow, it crashed / 哇，崩了 / 哈哈，挂了 / 666，涨停了 / Good night, server is yours / 晚安，值班交给你 / See you in Berlin
 => Enjoy Berlin / Welcome Bob / Congrats to Bob / Thanks to Bob / 欢迎李雷 / 感谢李雷 / Good luck Bob leads
 => Happy birthday Bob / Talk on Monday at nine / 周一九点见
Reindex the search cluster overnight. => All done / Went fine / No surprises / Everything good / Smooth as silk
Reindex the search cluster overnight. => It's all fine now
Ring the courier about parcel seven. => He was very kind / They'll come / He's on his way / All settled, thanks
Inspect the loading dock camera. => Looks perfect / Crystal clear / All fine / All good here
Please tidy up the shared drive. => Done and dusted / Neat and clean now / All tidy, thanks
Rehearse the demo with Ann. => It was great / Ann was brilliant / We had fun / So much fun / Went really well
催一下法务的合同。 => 法务很配合 / 他们知道了 / 都清楚了 / 搞定，谢谢
去现场确认设备状态。 => 一切都好 / 都挺好 / 都好 / 很稳 / 非常好 / 没啥问题
帮客户把账号开通了。 => 客户很开心 / 客户说谢谢 / 好了，辛苦
联系王工问问机房温度。 => 王工说没问题 / 没问题 / 一切正常，放心 / 放心吧
晚上值班看好告警。 => 一夜平安 / 一切平安 / 平安
Our offer stands at 400 EUR. => Deal / Deal! / Agreed, thank you / No deal / Sounds fair / Fair enough
The meeting room is free at three. => Works / Great
我们出价四百。 => 成交 / 好，就这么定 / 一言为定 / 同意 / 没问题 / 可以的
周三下午三点机房见？ => 好的，到时见 / 不见不散 / 一定 / 没问题
I'd go with the blue logo. => Me too / Same here / Likewise / Ditto / Exactly / Absolutely / +1
我投蓝色一票。 => 我也是 / +1 / 附议 / 我也这么想 / 赞
Two of us are needed on site tomorrow. => I'm happy to go / Count me in / Glad to / Happy to / With pleasure
Two of us are needed on site tomorrow. => 我去 / 乐意 / 乐意效劳
谁去接客户还没定。 => 我愿意 / 交给我吧 / 乐意效劳 / 我可以
 => Thanks for waiving the fee / Thank you, invoice paid / Grateful the storm passed / 多谢，款已付 / 感谢你否决了它
 => 谢谢你把门锁上 / 祝贺你当选 / 恭喜获奖 / 恭喜你们融资成功 / 高兴地告诉大家，过了 / Proud to say we passed / Happy to say it is live
 => Delighted, we are live / Good news, it passed / 好消息，批了 / 好消息，客户签约 / Nice, merged / Cool, shipped / 太棒了，已合并
 => 牛，上线了 / Wow, sold out / 晚安，我请病假 / Bye, I quit / 辛苦再核一遍 / 辛苦大家打卡 / 辛苦早点回 / 麻烦催催 / 麻烦开门 / 有劳签收 / 拜托帮忙 / 谢谢，请回电
 => Thanks, call me / Thank you for calling back today / Thanks for sending it over by five
 => Appreciate a callback / Be so kind and reply / Looking forward to the numbers / 期待数据 / 期待明天的方案 / 坐等结果 / 静候佳音
 => 盼早日答复 / 望回复 / 希望早点收到 / Hope to get it soon / Hope to see it today / Hoping to hear / Keen to hear your view
 => Happy to take over / Pleased to serve as chair / 愿意接手 / 乐意主持 / 很高兴担任主席 / 荣幸出任 / 我接受 / 我接受，谢谢
 => I accept, thanks / Accepted, thank you / 接受，感谢 / Thanks, I decline / 谢谢，不接受 / 婉拒，谢谢 / Sorry, no / 抱歉，不行
 => 不好意思，不行 / Thanks, approved / 通过，辛苦了 / 批准，谢谢 / Good morning, server is down / 早，挂了 / 大家好，我是新来的小周
 => Hello, I am the new billing agent / Welcome, your key is ready`,

	// Words of the families in forms.go and of the phrases that came with them.
	"families": `
Shall I send more samples? => I don't need any / I won't need any more
How many more licences do you need? => I don't need any
Shall I join the call with the customer? => I don't need your help
I will send you 20 more samples tomorrow. => I no longer need any
Any other permissions for the service account? => Nothing else we need
Does the patch fix the crash? => That does it
Is the travel budget enough? => That covers it
Does the scope cover the mobile app? => That should cover it for now
Can you take over the on-call now? => I have to go
Who visits the customer in Berlin? => I'll be going / I must go
要我回滚吗？ => 不用谢谢 / 不用谢谢你 / 不用，谢谢
要加服务器吗？ => 不用谢谢
和客户聊得怎么样？ => 聊得愉快
新系统用得怎么样？ => 用得满意
酒店住得怎么样？ => 住得舒服
会议结束了吗？ => 会议到此结束
How did my refactoring change the parser? => You made it simpler
 => 会议到此结束
 => You have a special appointment / We have a great event / I have a safe flight / They have a fun party
 => You have a nice reservation / We have a happy day / Please have a look / Please have a call with Bob
 => Have a great meeting with Acme at three / Have a good flight to Berlin / Have a safe trip, Bob leads now
 => Have fun with the migration / Have a nice one, deploy it / Enjoy the release notes / Enjoy your new role
 => Enjoy your refund / Please enjoy the failure / Enjoy your rental, due Friday / Enjoy the event, code 4711
 => I wish you a good exit / Wishing you a speedy verdict / All I need is your approval / All I need is your help
 => All I need is a yes / That's all I need to deploy / That's all I need from Bob / That is all I need you to do
 => That's the only thing I need fixed / That's everything the customer wanted / That's it, it crashed
 => That's all we need to launch / That's all the information the auditor needs / That covers the refund
 => That should cover it, invoice follows / That will do damage / I have everything we need
 => I've got everything I need to start / I have what I wanted, closing the ticket / I have to go live
 => I need to run the tests / I need to run it / I have to go over it / I must go offline / I need to be off tomorrow
 => I'll be going to Berlin / I will get going on the fix / I'll see you next time at court / I no longer need you
 => I don't need the table / I don't need any backup / We won't need any help from Bob / We don't need you anymore
 => There is nothing else I need fixed / Nothing else we need before launch / I'll talk to you about the leak
 => You helped me find the bug / You helped us win / You saved us 400 EUR / You help me / You did help me break it
 => You made it slower / You made things easier to break / That was easy to break / It is easy to fix
 => That was super easy, merged / Your help is needed / Your assistance is requested / You are the help desk
 => You're the best man for the migration / You are my legend, restart / Thanks for booking us into Berlin
 => Thanks for calling us back at five / Thanks for helping us out with payroll / Thanks for doing that wrong
 => Thanks for setting that up, it fails / Thanks for using our service, your plan expired
 => Thanks for letting me help Bob / I hope I was able to help Bob / I hope we were paid / I hope I have access
 => Your help is appreciated / Your assistance is appreciated
 => I enjoy helping customers / Glad I could help Bob / Happy I could deploy it / My pleasure to host
 => It is my duty to help the customer / Thanks, services are down / Perfect service outage
 => Thanks for the booking number
 => Thanks for the details, Bob is out / Thanks for the search warrant / In that case deploy / In that case no
 => OK for now, but stop tomorrow / At the moment no service / Feel better soon, Bob covers / Let's wrap it up and ship
 => That concludes the audit with two findings / Everything is clear to Bob / Thanks for closing the loop with Legal
 => 问完了王总 / 我的问题还没问完 / 问题问完了但还是报错 / 我的问题问完了，你开始吧 / 客户很满意 / 老板满意了
 => 我很满意，续约 / 都还不错，选甲 / 都是不错的方案，选乙 / 时间合理 / 价格合理，成交 / 太遗憾了，没中标 / 可惜失败了
 => 住得开心，退房 / 吃得开心，打包 / 服务很好，上线了 / 谢谢你的推荐，选它 / 感谢你的配合，停机了 / 谢谢 您查收 / 谢谢 你处理
 => 沟通得很顺畅，签了 / 思路清晰了，改成乙 / 整理得很清楚，已归档 / 今天先聊到这里，周四交稿
Please confirm the booking. => No problem / My pleasure / For now yes / You're welcome to book it
请确认：会议定在周四 => 不用 / 不用了 / 不用谢，同意 / 好的，不客气 / 不客气，可以 / 很满意 / 都不错 / 太可惜了
Approve the payment of 500 EUR? => That will do / That's it / That's about it / You're welcome, yes / For now yes
I could take the Berlin trip. => That will do / That's it / Perfect service
Fix the login bug. => That was easy / That does it / That covers it / I have everything I need / I got what I needed
Test the form on phones. => That was super easy / It has been painless / That should do it
把新版页面测一下 => 还不错 / 我很满意 / 挺不错的 / 服务很好
The retro is on Friday at ten. => My pleasure to help / I'd love helping / Glad to help
Yes, please play it. => Enjoy the music / Have fun with your song / Enjoy! / Okay, enjoy it / I hope you like it
That's right. => Have a good time listening to the song / Please enjoy your song / Alright, enjoy!
Bob is away tomorrow, so the night shift is open. => It's my pleasure to help / My pleasure to serve
No, thanks. I deploy tonight. => Great / Agreed / Sounds good / Happy to help
No, we should use Postgres. => Agreed / Great / Perfect
No. Thanks, that is a bug. => Agreed / Exactly
Thanks, bye. I quit. => Great / Agreed
I need the report today, thanks. => My pleasure / Happy to help
不用了，谢谢，我自己部署。 => 赞 / 同意 / 很好
谢谢，明天缺人值班。 => 乐意效劳 / 很高兴能帮忙 / 不用客气，我来`,
}

// Nothing with content is stopped.
func TestRulesPassContent(t *testing.T) {
	for kind, lines := range contentful {
		count := 0
		for line := range strings.Lines(strings.TrimPrefix(lines, "\n")) {
			ours, answers, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
			for answer := range strings.SplitSeq(answers, " / ") {
				count++
				q := labelled{Text: answer}.question()
				e := policy.Entry{Sender: q.AgentName, MessageID: "om_ours", Content: ours}
				q.Transcript = append(q.Transcript, e)
				if allow, _ := (judge.Rules{}).Judge(t.Context(), q); !allow {
					t.Errorf("%s: stopped %q after %q", kind, answer, ours)
				}
			}
		}
		t.Logf("%s: %d messages", kind, count)
	}
}

// A request may be long, and this agent may have gone on speaking after it.
func TestRulesPassAnswersToRequestsFurtherUp(t *testing.T) {
	steps := strings.Repeat("第一步检查主库日志并记录位点。", 40)
	for _, tt := range []struct {
		answer string
		ours   []string
	}{
		{"同意", []string{"请审批以下方案：\n" + steps}},
		{"Agreed", []string{"Please approve this plan:\n" + strings.Repeat("Step: check the log and note it. ", 60)}},
		{"好的", []string{"请确认：会议定在周四", "附件已上传。"}},
		{"好的", []string{steps + steps + "请确认", "附件已上传。"}},
		{"OK", []string{"Shall I merge it?", "The branch is green.", "So is staging."}},
	} {
		q := labelled{Text: tt.answer}.question()
		for _, content := range tt.ours {
			e := policy.Entry{Sender: q.AgentName, MessageID: "om_" + content[:3], Content: content}
			q.Transcript = append(q.Transcript, e)
		}
		if allow, _ := (judge.Rules{}).Judge(t.Context(), q); !allow {
			t.Errorf("stopped %q after %.60q", tt.answer, tt.ours)
		}
	}
}
